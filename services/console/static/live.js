// Keeps the parts of a page up to date that its server sends again. Without
// this script the page loads itself anew every few seconds.
for (const root of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(root.dataset.live);
  const show = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      const part = document.getElementById(id);
      if (part) part.innerHTML = html; // made by this server's templates, which escape everything
    }
  };
  source.addEventListener("parts", show);
  source.addEventListener("last", (event) => {
    show(event);
    source.close();
  });
  addEventListener("pagehide", () => source.close());
}
