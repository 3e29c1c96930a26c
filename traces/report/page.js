"use strict";
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  dark.addEventListener("change", name);
  name();

  const LANES = ["decision", "foreground", "utility", "preparation", "other"];
  const MOST_ZOOM = 4096;
  const data = JSON.parse(document.getElementById("data").textContent);

  function duration(ns) {
    if (ns >= 1e9) return (ns / 1e9).toFixed(2) + " s";
    if (ns >= 1e7) return (ns / 1e6).toFixed(0) + " ms";
    if (ns >= 1e6) return (ns / 1e6).toFixed(1) + " ms";
    return (ns / 1e3).toFixed(0) + " µs";
  }

  function timeline(figure) {
    const { span, slices } = data[Number(figure.dataset.index)];
    const view = figure.querySelector(".view");
    const canvas = figure.querySelector(".canvas");
    const cursor = figure.querySelector(".cursor");
    const output = figure.querySelector("output");
    let zoom = 1;
    let chosen = -1;

    function place(middle) {
      view.scrollLeft = middle * canvas.clientWidth - view.clientWidth / 2;
    }

    function zoomTo(wanted) {
      const middle = chosen >= 0
        ? (slices[chosen][1] + slices[chosen][2] / 2) / span
        : (view.scrollLeft + view.clientWidth / 2) / canvas.clientWidth;
      zoom = Math.min(MOST_ZOOM, Math.max(1, wanted));
      canvas.style.width = zoom * 100 + "%";
      place(middle);
    }

    function choose(index) {
      chosen = Math.min(slices.length - 1, Math.max(0, index));
      const [lane, at, ns, what, outcome, waited, told] = slices[chosen];
      cursor.hidden = false;
      cursor.style.left = (at / span) * 100 + "%";
      cursor.style.width = (ns / span) * 100 + "%";
      place((at + ns / 2) / span);
      output.textContent = `${LANES[lane]}: ${what}, ${outcome}${told ? " after it was told to give way" : ""}; `
        + `${duration(ns)} from ${duration(at)}, waited ${duration(waited)}. Grant ${chosen + 1} of ${slices.length}.`;
    }

    const keys = {
      ArrowRight: () => choose(chosen + 1),
      ArrowLeft: () => choose(chosen < 0 ? slices.length - 1 : chosen - 1),
      Home: () => choose(0),
      End: () => choose(slices.length - 1),
    };
    const zooms = { "+": () => zoomTo(zoom * 2), "=": () => zoomTo(zoom * 2), "-": () => zoomTo(zoom / 2), "0": () => zoomTo(1) };
    view.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = zooms[event.key] || (slices.length ? keys[event.key] : undefined);
      if (act) { act(); event.preventDefault(); }
    });
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * span;
      const away = (slice) => Math.max(slice[1] - at, at - slice[1] - slice[2], 0);
      let nearest = 0;
      slices.forEach((slice, index) => { if (away(slice) < away(slices[nearest])) nearest = index; });
      if (slices.length) choose(nearest);
    });
    const buttons = { in: () => zoomTo(zoom * 4), out: () => zoomTo(zoom / 4), all: () => zoomTo(1) };
    for (const button of figure.querySelectorAll("button")) {
      button.addEventListener("click", buttons[button.dataset.zoom]);
    }
    figure.querySelector(".tools").hidden = false;
  }

  document.querySelectorAll(".timeline").forEach(timeline);
})();
