// Keeps the parts of a page up to date that its server sends again. Without
// this script the page loads itself anew every few seconds.
//
// Only a page that is seen holds a connection: a browser has six for each
// server, and with six pages in the background the next one would never load.
for (const root of document.querySelectorAll("[data-live]")) {
  let source;
  let over = false; // the server has said that nothing more will change

  const leave = () => {
    source?.close();
    source = undefined;
  };
  const show = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      const part = document.getElementById(id);
      if (part) part.innerHTML = html; // made by this server's templates, which escape everything
    }
  };
  const watch = () => {
    if (document.hidden || over) return leave();
    if (source) return;
    source = new EventSource(root.dataset.live); // it begins with all parts as they are now
    source.addEventListener("parts", show);
    source.addEventListener("last", (event) => {
      show(event);
      over = true;
      leave();
    });
  };

  watch();
  document.addEventListener("visibilitychange", watch);
  addEventListener("pageshow", watch); // also when it comes back out of the browser's memory
  addEventListener("pagehide", leave);
}
