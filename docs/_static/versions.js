// The menu of versions: links to the same site in other versions, listed in versions.json beside their folders.
const script = document.currentScript;
fetch(script.dataset.versions)
  .then((answer) => (answer.ok ? answer.json() : []))
  .then((versions) => {
    const place = document.querySelector(".sidebar-search-container");
    if (!place || versions.length === 0) return;
    const menu = document.createElement("select");
    menu.className = "version-menu";
    menu.setAttribute("aria-label", "Version of the documentation");
    const root = script.dataset.versions.replace(/[^/]*$/, "");
    const names = versions.includes(script.dataset.here) ? versions : [script.dataset.here, ...versions];
    for (const name of names) menu.add(new Option(name, `${root}${name}/`, false, name === script.dataset.here));
    menu.addEventListener("change", () => window.location.assign(menu.value));
    place.before(menu);
  });
