/* A field above each long table of a page that asks for it, which hides rows without its words. */
document.querySelectorAll(".filtered + .md-typeset__scrollwrap, .filtered + table").forEach(box => {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Show rows with these words";
  field.setAttribute("aria-label", field.placeholder);
  field.className = "filter";
  box.before(field);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    box.querySelectorAll("tbody tr").forEach(row => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    });
  });
});
