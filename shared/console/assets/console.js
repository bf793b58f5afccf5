// Replaces the regions of a page with what the server sends, over one stream of server-sent events.
// Without this script the page is complete as it was loaded.
"use strict";
(() => {
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  let source = null;
  let ended = false;
  let paused = false;

  const show = (name, text) => {
    document.documentElement.dataset.state = name;
    if (state.textContent !== text) state.textContent = text;
  };

  // A focused link, and the place to which a table is scrolled, survive the replacement.
  const replace = (region, html) => {
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    const index = focused ? [...region.querySelectorAll("a, button, summary, [tabindex]")].indexOf(focused) : -1;
    const scrolled = [...region.querySelectorAll(".scroll, .log")].map((e) => [e.scrollTop, e.scrollLeft]);
    const open = [...region.querySelectorAll("details")].map((e) => e.open);
    region.innerHTML = html;
    region.querySelectorAll(".scroll, .log").forEach((e, i) => {
      if (scrolled[i]) [e.scrollTop, e.scrollLeft] = scrolled[i];
    });
    region.querySelectorAll("details").forEach((e, i) => { if (open[i]) e.open = true; });
    if (index >= 0) region.querySelectorAll("a, button, summary, [tabindex]")[index]?.focus({ preventScroll: true });
  };

  const open = () => {
    source = new EventSource(document.body.dataset.stream);
    source.onopen = () => show("live", "live");
    source.onerror = () => { if (!ended) show("lost", "connection lost, trying again"); };
    source.onmessage = (event) => {
      show("live", "live");
      for (const [name, html] of Object.entries(JSON.parse(event.data))) {
        const region = document.querySelector(`[data-region="${name}"]`);
        if (region) replace(region, html);
      }
    };
    source.addEventListener("end", () => {
      ended = true;
      source.close();
      pause.hidden = true;
      show("ended", "the program has ended; this is its last state");
    });
  };

  pause.hidden = false;
  const close = () => {
    source?.close();
    source = null;
  };
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Continue" : "Pause";
    if (!paused) return open();
    close();
    show("paused", "paused");
  });

  // A page that nobody sees needs no stream: a browser opens only six to one server.
  document.addEventListener("visibilitychange", () => {
    if (ended || paused) return;
    close();
    if (document.hidden) show("paused", "not visible");
    else open();
  });

  // A button is usable once its confirmation is typed; the server checks it again.
  document.querySelectorAll("input[data-word]").forEach((input) => {
    const button = input.form.querySelector("button");
    const check = () => { button.disabled = input.value.trim().toLowerCase() !== input.dataset.word; };
    input.addEventListener("input", check);
    check();
  });

  // A second click must not do the same again.
  document.querySelectorAll('form[method="post"]').forEach((form) => {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "1";
      form.classList.add("sent");
    });
  });

  show("lost", "connecting");
  open();
})();
