// Filters of the claims, and the metric whose verdicts are shown. Without it the page is complete.
const form = document.querySelector(".filters");
const claims = [...document.querySelectorAll("article.claim")];
const matches = (asked, entry) => asked.every((value, at) => !value || value === entry[at]);

function isShown(claim, asked) {
  if (asked.paper && claim.dataset.paper !== asked.paper) return false;
  const entries = claim.dataset.at.trim().split(" ").filter(Boolean).map((text) => text.split("|"));
  const wanted = [asked.scale, asked.metric, asked.verdict, asked.robust];
  if (!entries.length) return !asked.scale && !asked.robust && ["", "none"].includes(asked.verdict);
  return entries.some((entry) => matches(wanted, entry));
}

function showMetric(scale, metric) {
  const lines = [...scale.querySelectorAll("[data-metric]")];
  const shown = lines.find((line) => line.dataset.metric === metric) ??
    lines.find((line) => line.dataset.own === "");
  for (const line of lines) line.hidden = line !== shown;
}

function filter() {
  const asked = Object.fromEntries(new FormData(form));
  for (const claim of claims) claim.hidden = !isShown(claim, asked);
  for (const scale of document.querySelectorAll(".scale")) showMetric(scale, asked.metric);
  for (const part of document.querySelectorAll("section.paper"))
    part.hidden = !part.querySelector("article.claim:not([hidden])");
  form.querySelector(".none").hidden = claims.some((claim) => !claim.hidden);
}

form.hidden = false;
form.addEventListener("change", () => { filter(); noteInAddress(); });
form.addEventListener("reset", () => setTimeout(() => { filter(); noteInAddress(); }));

// The filters are in the address, such as #verdict=fails&paper=fedsls, so that a view can be shared.
function noteInAddress() {
  const asked = [...new FormData(form)].filter(([, value]) => value && value !== "own");
  history.replaceState(null, "", "#" + new URLSearchParams(asked));
}

function filterByAddress() {
  if (!location.hash.includes("=")) return;
  for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
    if (form.elements[name]) form.elements[name].value = value;
  filter();
  form.scrollIntoView();
}
addEventListener("hashchange", filterByAddress);
filterByAddress();
