// Search works in a page opened from disk: browsers start no worker there, so a hidden frame plays its part.
// The theme's own stand-in would be loaded from the network.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.inside = frame.contentWindow;
    this.ready = new Promise((resolve) => { frame.onload = resolve; });
    window.addEventListener("message", (event) => {
      if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    const prelude = `
      postMessage = (data) => parent.postMessage(data, "*");
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((loaded) => {
        const script = document.createElement("script");
        script.src = url;
        script.onload = loaded;
        document.body.appendChild(script);
      })), Promise.resolve());`;
    const page = frame.contentDocument;
    page.open();
    page.write(`<body><script>${prelude}<\/script><script src="${url}"><\/script></body>`);
    page.close();
  }
  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;
