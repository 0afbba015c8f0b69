// SPDX-License-Identifier: Apache-2.0
// Search from the disk: browsers start no worker of a file: page, so the search's runs in a hidden frame.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready = new Promise((resolve) => this.#frame.addEventListener("load", resolve, { once: true }));
    constructor(url) {
      super();
      // The worker posts to its page, which knows it by its window.
      addEventListener("message", ({ source, data }) => {
        if (source !== this.#frame.contentWindow) return;
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      });
      this.#frame.hidden = true;
      this.#frame.srcdoc = `<script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => Promise.all(urls.map((src) => new Promise((done) =>
          document.body.appendChild(Object.assign(document.createElement("script"), { src, onload: done })))));
      <\/script><body><script src="${url}"><\/script>`;
      document.body.append(this.#frame);
    }
    postMessage(data) {
      this.#ready.then(() => this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.#frame.remove();
    }
  };
}
