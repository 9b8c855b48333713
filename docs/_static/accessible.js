// What the theme leaves to be said to screen readers and keyboards.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll('p.caption[role="heading"]')) caption.setAttribute("aria-level", "2");
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
  const wide = document.querySelectorAll("pre, .table-wrapper, .equation");
  const reach = () => {
    for (const element of wide) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
    }
  };
  reach();
  window.addEventListener("resize", reach);
});
