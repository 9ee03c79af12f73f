// Before anything is drawn, set the chosen theme, or the system's.
try {
  const chosen = localStorage.getItem("toolgate-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's theme */ }
