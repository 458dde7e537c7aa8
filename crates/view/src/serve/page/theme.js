// Runs before the page is drawn, so that the page never appears in the other theme first.
"use strict";
(() => {
  const kinds = ["auto", "light", "dark"];
  let kind = "auto";
  try {
    kind = localStorage.getItem("ledgerline-theme") || "auto";
  } catch {
    // A browser without storage uses the theme of the system.
  }
  const show = () => {
    if (!kinds.includes(kind)) kind = "auto";
    if (kind === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = kind;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${kind}`;
  };
  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      kind = kinds[(kinds.indexOf(kind) + 1) % kinds.length];
      try {
        localStorage.setItem("ledgerline-theme", kind);
      } catch {
        // The choice holds until the page is left.
      }
      show();
    });
  });
})();
