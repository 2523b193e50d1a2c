// Filters of the claims, and the metric whose numbers are shown. Without it the page is complete.
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
  const panels = [...scale.querySelectorAll(".panel")], others = scale.querySelector(".others");
  if (!others) return;
  const first = panels.find((panel) => panel.dataset.metric === metric) ??
    panels.find((panel) => panel.dataset.own === "");
  for (const panel of panels) others.querySelector(".multiples").append(panel);
  scale.prepend(first);
}

function filter() {
  const asked = Object.fromEntries(new FormData(form));
  for (const claim of claims) claim.hidden = !isShown(claim, asked);
  for (const scale of document.querySelectorAll(".scale")) showMetric(scale, asked.metric);
  for (const part of document.querySelectorAll("section.paper, .untested"))
    part.hidden = !part.querySelector("article.claim:not([hidden])");
  form.querySelector(".none").hidden = claims.some((claim) => !claim.hidden);
  const narrowed = Object.values(asked).some((value) => value && value !== "own");
  for (const part of document.querySelectorAll(".untested")) part.open = narrowed && asked.verdict === "none";
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
  for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
    if (form.elements[name]) form.elements[name].value = value;
  filter();
  form.scrollIntoView();
}

// A link to a row of a table opens the folded parts that the row is in.
function openTarget() {
  if (location.hash.includes("=")) return filterByAddress();
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", openTarget);
if (location.hash) openTarget();
