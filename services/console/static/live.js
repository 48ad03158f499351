// Keeps the parts of a page up to date that its server sends again. Without
// this script the page loads itself anew every few seconds.
//
// Only a page that is seen holds a connection: a browser has six for each
// server, and with six pages in the background the next one would never load.
for (const root of document.querySelectorAll("[data-live]")) {
  let source;
  let over = false; // the server has said that nothing more will change
  let wait = 1000; // ms until we ask again where the browser does not

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
  // A browser asks again by itself when a connection is lost, but never after an
  // answer that is no stream, such as that of a proxy while the server restarts.
  const failed = () => {
    if (source?.readyState !== EventSource.CLOSED) return;
    leave();
    setTimeout(watch, wait * (0.5 + Math.random())); // not all at the same moment
    wait = Math.min(2 * wait, 60000);
  };
  const watch = () => {
    if (document.hidden || over) return leave();
    if (source) return;
    source = new EventSource(root.dataset.live); // it begins with all parts as they are now
    source.addEventListener("open", () => (wait = 1000));
    source.addEventListener("error", failed);
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
