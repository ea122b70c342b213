// Opens an original trace in Perfetto. The only thing that leaves this machine, and only on a click.

const HOME = "https://ui.perfetto.dev";
const KNOCK_MS = 200;
const PATIENCE_MS = 60000;

export async function openInPerfetto(address, title, say) {
  // Before anything is waited for: a browser blocks windows that do not follow a click at once.
  const page = window.open(HOME);
  if (!page) return say("the browser blocked the new window: allow pop-ups for this page");
  say("reading the trace …");
  const response = await fetch(address);
  if (!response.ok) return say("the trace is not there any more");
  const buffer = await response.arrayBuffer();
  say("waiting for Perfetto …");
  const ready = await answered(page);
  if (!ready) return say("Perfetto did not answer: it needs the internet; download the trace instead");
  page.postMessage({ perfetto: { buffer, title, localOnly: true } }, HOME);
  return say("opened in Perfetto");
}

function answered(page) {
  return new Promise((done) => {
    const began = performance.now();
    const listen = (event) => {
      if (event.origin === HOME && event.data === "PONG") finish(true);
    };
    const knock = setInterval(() => {
      if (page.closed || performance.now() - began > PATIENCE_MS) finish(false);
      else page.postMessage("PING", HOME);
    }, KNOCK_MS);
    const finish = (ready) => {
      clearInterval(knock);
      removeEventListener("message", listen);
      done(ready);
    };
    addEventListener("message", listen);
  });
}
