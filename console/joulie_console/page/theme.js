// Runs before anything is painted: who has chosen a theme sees no other one first.
{
  const chosen = localStorage.getItem("theme");
  if (chosen && chosen !== "auto") document.documentElement.dataset.theme = chosen;
}
