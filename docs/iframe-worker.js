/* Pages that are opened from the disk may not start a worker, so search would not work there. This
   stands in for the worker: the search runs in a hidden frame, and messages go there and back. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<script>" +
        "self.postMessage = data => parent.postMessage(data, '*');" +
        "<\/script><script src=\"" + new URL(url, location.href) + "\"><\/script>";
      document.body.append(frame);
      this.ready = new Promise(done => frame.addEventListener("load", () => done(frame.contentWindow)));
      addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
    }
    postMessage(data) { this.ready.then(target => target.dispatchEvent(new MessageEvent("message", { data }))); }
    terminate() {}
  };
}
