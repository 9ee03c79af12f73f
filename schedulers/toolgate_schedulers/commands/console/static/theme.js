// Before anything is drawn: the theme that was chosen, else the system's.
try {
  const chosen = localStorage.getItem("toolgate-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's theme */ }
