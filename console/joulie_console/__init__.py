"""The console: a read API, a stream of events, and the page that shows them."""
