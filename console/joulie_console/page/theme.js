// Runs before the first paint, so that a chosen theme applies from the start.
{
  const chosen = localStorage.getItem("theme");
  if (chosen && chosen !== "auto") document.documentElement.dataset.theme = chosen;
}
