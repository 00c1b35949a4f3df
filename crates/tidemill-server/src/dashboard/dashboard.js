// The dashboard's script. Every page can be read without it; it keeps pages up to date and saves some clicks.
"use strict";

(() => {
  // The theme: the system's, unless somebody chose.
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("tidemill-theme"); } catch { return null; } };
  const chosen = remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const switchTheme = () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("tidemill-theme", root.dataset.theme); } catch { /* a browser that keeps nothing */ }
  };

  // Times: how long ago, kept true.
  const coarse = (millis) => {
    const seconds = Math.floor(millis / 1000);
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  };
  const tellTimes = (within) => {
    const now = Date.now();
    for (const time of within.querySelectorAll("time[data-at]")) {
      const since = now - Number(time.dataset.at);
      const text = since < -1000 ? `in ${coarse(-since)}` : since < 2000 ? "just now" : `${coarse(since)} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // What an element belongs to. Checks, open sheets and typed texts stay with their item, or go with it.
  const itemOf = (node) => {
    if (node.nodeType !== Node.ELEMENT_NODE) return "";
    const named = (text) => (text ? `${node.nodeName} ${text}` : "");
    if (node.id) return named(node.id);
    switch (node.nodeName) {
      case "FORM":
        return named(node.getAttribute("action"));
      case "INPUT":
        return node.matches("[type=checkbox][name], [type=radio][name]") ? named(`${node.name} ${node.getAttribute("value")}`) : "";
      case "TR": case "LI": case "DETAILS":
        return named([...node.querySelectorAll("form[action], input[type=checkbox][name]")].map(itemOf).join(" "));
      default:
        return "";
    }
  };
  // Makes `now` like `next` by as few changes as will do, so that focus, open folds and checks stay.
  const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;
  const morph = (now, next) => {
    if (now.nodeType !== Node.ELEMENT_NODE) {
      if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of [...now.attributes]) {
      // What people opened stays open; what we set stays set.
      if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (name !== "open" && name !== "hidden" && now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    morphChildren(now, next);
  };
  const morphChildren = (now, next) => {
    const all = [...next.childNodes].map((wanted) => [wanted, itemOf(wanted)]);
    const stays = new Set(all.map(([, item]) => item));
    const known = new Map();
    for (const child of [...now.children]) {
      const item = itemOf(child);
      if (!item) continue;
      if (!stays.has(item)) { child.remove(); continue; }
      if (!known.has(item)) known.set(item, []);
      known.get(item).push(child);
    }
    let place = now.firstChild;
    for (const [wanted, item] of all) {
      const own = item ? known.get(item)?.shift() : null;
      if (own) {
        if (own !== place) now.insertBefore(own, place);
        morph(own, wanted);
        place = own.nextSibling;
      } else if (!item && place && !itemOf(place) && alike(place, wanted)) {
        morph(place, wanted);
        place = place.nextSibling;
      } else {
        now.insertBefore(wanted, place);
      }
    }
    while (place) {
      const after = place.nextSibling;
      place.remove();
      place = after;
    }
  };

  const show = (id, html) => {
    const piece = document.getElementById(id);
    if (!piece) return;
    const next = new DOMParser().parseFromString(html, "text/html").body;
    const graph = piece.querySelector(".graph.moves");
    if (graph) {
      piece.replaceChildren(...next.childNodes);
    } else {
      morphChildren(piece, next);
    }
    enliven(piece);
  };

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      // Browsers allow the clipboard on secure pages only; this works on all.
      const field = document.createElement("textarea");
      field.value = button.dataset.copy;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.dataset.done = "yes";
    setTimeout(() => { delete button.dataset.done; }, 1200);
  };

  // What was last seen of the picture: one that is drawn again in the same size is shown from there.
  let seen = null;

  // A picture that can be moved and zoomed.
  const enlivenGraph = (graph) => {
    const svg = graph.querySelector(":scope > svg");
    if (!svg || graph.classList.contains("moves")) return;
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const box = () => graph.getBoundingClientRect();
    graph.style.setProperty("--graph-height", `${Math.min(480, Math.max(110, height + 12))}px`);
    graph.classList.add("moves");
    graph.querySelector(".graph-tools").hidden = false;
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    let view = null;
    const apply = () => {
      seen = { width, height, view };
      svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    };
    const fit = (least) => {
      const { width: w, height: h } = box();
      // Never larger than life; when all of it would be too small to read, its beginning is shown.
      const scale = Math.max(Math.min(1, w / width, h / height), least);
      view = { w: w / scale, h: h / scale };
      view.x = width * scale > w ? 0 : (width - view.w) / 2;
      view.y = height * scale > h ? (height - view.h) / 2 : (height - view.h) / 2;
      apply();
    };
    const zoom = (factor, x, y) => {
      const { width: w, height: h } = box();
      const scale = Math.min(4, Math.max(0.02, (w / view.w) * factor));
      const [fx, fy] = [x ?? w / 2, y ?? h / 2];
      const [px, py] = [view.x + (fx / w) * view.w, view.y + (fy / h) * view.h];
      view.w = w / scale;
      view.h = h / scale;
      view.x = px - (fx / w) * view.w;
      view.y = py - (fy / h) * view.h;
      apply();
    };
    if (seen && seen.width === width && seen.height === height) {
      view = seen.view;
      apply();
    } else {
      fit(0.55);
    }
    graph.addEventListener("click", (event) => {
      const tool = event.target.closest("[data-zoom]");
      if (!tool) return;
      if (tool.dataset.zoom === "fit") fit(0);
      else zoom(tool.dataset.zoom === "in" ? 1.35 : 1 / 1.35);
    });
    graph.addEventListener("wheel", (event) => {
      // Scrolling a page must not zoom by accident.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const { left, top } = box();
      zoom(Math.exp(-event.deltaY / 300), event.clientX - left, event.clientY - top);
    }, { passive: false });
    let held = null;
    graph.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.target.closest("button")) return;
      held = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false };
    });
    graph.addEventListener("pointermove", (event) => {
      if (!held) return;
      const { width: w, height: h } = box();
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.moved && Math.hypot(dx, dy) < 4) return;
      if (!held.moved) graph.setPointerCapture(event.pointerId);
      held.moved = true;
      graph.classList.add("held");
      view.x = held.from.x - (dx / w) * view.w;
      view.y = held.from.y - (dy / h) * view.h;
      apply();
    });
    const release = () => {
      graph.classList.remove("held");
      const was = held;
      held = null;
      if (was?.moved) graph.addEventListener("click", (event) => event.preventDefault(), { once: true, capture: true });
    };
    graph.addEventListener("pointerup", release);
    graph.addEventListener("pointercancel", () => { held = null; graph.classList.remove("held"); });
    graph.addEventListener("dragstart", (event) => event.preventDefault());
    // A user who walks through it with the keyboard sees where they are.
    graph.addEventListener("focusin", (event) => {
      const rect = event.target.querySelector?.("rect");
      if (!rect || !event.target.matches(":focus-visible")) return;
      const [x, y] = [Number(rect.getAttribute("x")), Number(rect.getAttribute("y"))];
      if (x >= view.x && x + 168 <= view.x + view.w && y >= view.y && y + 46 <= view.y + view.h) return;
      view.x = x - view.w / 2 + 84;
      view.y = y - view.h / 2 + 20;
      apply();
    });
    addEventListener("resize", () => { if (graph.isConnected) fit(0.55); });
  };

  // A log that is still written.
  const follow = async (log) => {
    const address = log.dataset.follow;
    delete log.dataset.follow;
    const kept = 256 * 1024;
    try {
      const answer = await fetch(address, { headers: { accept: "text/plain" } });
      if (!answer.ok || !answer.body) return;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      log.textContent = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
        log.append(value);
        if (log.textContent.length > kept * 2) log.textContent = log.textContent.slice(-kept);
        if (isAtEnd) log.scrollTop = log.scrollHeight;
      }
    } catch { /* The page is left, or the server closed. What came stays. */ }
  };

  // A text that is checked as it is typed: the server says what is wrong, in the place that the text names.
  const checkTexts = () => {
    let waiting = null;
    let asked = 0;
    const check = async (field) => {
      const number = ++asked;
      const form = new URLSearchParams(new FormData(field.form));
      form.set("deed", "check");
      try {
        const answer = await fetch(field.form.action, { method: "POST", body: form });
        if (!answer.ok || answer.redirected) return;
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const told = page.getElementById(field.dataset.check);
        // A later text was asked about meanwhile.
        if (told && number === asked) document.getElementById(field.dataset.check).replaceChildren(...told.childNodes);
      } catch { /* The server is away; sending the form tells more. */ }
    };
    const soon = (field) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => check(field), 400);
    };
    document.addEventListener("input", (event) => {
      if (event.target.matches("[data-check]")) soon(event.target);
    });
    document.addEventListener("change", async (event) => {
      if (!event.target.matches("input[data-into]")) return;
      const [file] = event.target.files;
      const field = document.getElementById(event.target.dataset.into);
      if (!file) return;
      if (file.size > Number(event.target.dataset.most)) {
        const most = Math.floor(Number(event.target.dataset.most) / 1024);
        document.getElementById(field.dataset.check).textContent = `The file is larger than ${most} KiB. Send it with: tidemill submit`;
        return;
      }
      field.value = await file.text();
      check(field);
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("button[data-line]");
      if (!link) return;
      const field = document.getElementById(link.dataset.at);
      const lines = field.value.split("\n");
      const line = Number(link.dataset.line) - 1;
      const before = lines.slice(0, line).reduce((sum, text) => sum + text.length + 1, 0);
      // Columns count characters, and a field counts units of which some characters take two.
      const column = [...(lines[line] ?? "")].slice(0, Number(link.dataset.column) - 1).join("").length;
      field.focus();
      field.setSelectionRange(before + column, before + (lines[line] ?? "").length);
    });
  };

  const enliven = (within) => {
    for (const button of within.querySelectorAll(".copy[hidden], [data-check-all][hidden], [data-theme-switch][hidden], [data-file][hidden]")) {
      button.hidden = false;
    }
    for (const graph of within.querySelectorAll("[data-graph]")) enlivenGraph(graph);
    for (const log of within.querySelectorAll("[data-follow]")) follow(log);
    letScroll(within);
    tellTimes(within);
  };

  // A table that is wider than its place is scrolled by the keyboard too, whether there is a link in it or not.
  const letScroll = (within) => {
    for (const wrap of within.querySelectorAll(".wrap")) {
      if (wrap.scrollWidth > wrap.clientWidth) wrap.tabIndex = 0;
      else wrap.removeAttribute("tabindex");
    }
  };

  // What changes is sent by the server while the page is in sight.
  const stayLive = () => {
    const light = document.getElementById("live-light");
    const tell = (on, text) => { if (light) { light.dataset.on = on; light.textContent = text; } };
    const path = document.body.dataset.live;
    if (!path) { tell("none", "Not a live page"); return; }
    let seq = document.body.dataset.seq;
    let source = null;
    const open = () => {
      if (source) return;
      source = new EventSource(`${path}${path.includes("?") ? "&" : "?"}seq=${seq}`);
      source.onopen = () => tell("yes", "Live");
      source.onmessage = (event) => {
        seq = event.lastEventId || seq;
        const { pieces, marks } = JSON.parse(event.data);
        for (const [id, html] of Object.entries(pieces)) show(id, html);
        for (const [id, state] of Object.entries(marks)) {
          const element = document.getElementById(id);
          if (element) element.dataset.state = state;
        }
      };
      source.addEventListener("bye", (event) => {
        if (event.data === "out") ended("This session is over.");
      });
      source.onerror = () => {
        if (source?.readyState === EventSource.CLOSED) {
          source = null;
          tell("no", "Not live");
          lookAgain();
        } else {
          tell("no", "Connecting again");
        }
      };
    };
    // A stream does not tell why it was refused; a plain request does.
    const lookAgain = async () => {
      const call = new AbortController();
      try {
        const answer = await fetch(path, { signal: call.signal });
        call.abort();
        if (answer.status === 401) { ended("You are logged out."); return; }
      } catch { /* The server is away. */ }
      setTimeout(() => { if (!document.hidden) open(); }, 5000);
    };
    const close = () => { source?.close(); source = null; };
    const ended = (text) => {
      close();
      tell("no", "Ended");
      const notice = document.getElementById("notice");
      const login = document.createElement("a");
      login.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
      login.textContent = "Log in again";
      notice.replaceChildren(text, " ", login);
      notice.hidden = false;
    };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    addEventListener("pagehide", close);
    addEventListener("pageshow", () => { if (!document.hidden) open(); });
    open();
  };

  addEventListener("DOMContentLoaded", () => {
    enliven(document);
    // On a narrow screen the navigation is one line that scrolls: it shows where one is.
    const current = document.querySelector('.side [aria-current="page"]');
    if (current) {
      const list = current.closest("ul");
      list.scrollLeft = current.offsetLeft - list.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
    }
    addEventListener("resize", () => letScroll(document));
    setInterval(() => tellTimes(document), 5000);
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button?.matches("[data-theme-switch]")) switchTheme();
      if (button?.matches(".copy")) { event.preventDefault(); copy(button); }
      // A click elsewhere closes what asks for a confirmation.
      for (const sheet of document.querySelectorAll("details.confirm[open]")) {
        if (!sheet.contains(event.target)) sheet.open = false;
      }
    });
    document.addEventListener("change", (event) => {
      if (!event.target.matches("[data-check-all]")) return;
      for (const box of event.target.closest("form").querySelectorAll('tbody input[type="checkbox"]')) {
        box.checked = event.target.checked;
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        for (const sheet of document.querySelectorAll("details.confirm[open]")) {
          sheet.open = false;
          sheet.querySelector("summary").focus();
        }
      }
      // In a source, the tab key indents; escape and then tab leaves it.
      if (event.target.matches("textarea.code")) {
        if (event.key === "Escape") event.target.dataset.leave = "yes";
        else if (event.key === "Tab" && !event.shiftKey && !event.target.dataset.leave) {
          event.preventDefault();
          const { selectionStart: start, selectionEnd: end } = event.target;
          event.target.setRangeText("  ", start, end, "end");
        } else delete event.target.dataset.leave;
      }
    });
    checkTexts();
    stayLive();
  });
})();
