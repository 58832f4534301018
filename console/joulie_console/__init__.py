"""For people: the read API, the stream of decisions, and the page that shows it all."""
