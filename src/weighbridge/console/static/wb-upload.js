// <wb-upload server="https://…" key="wbt_…" pipeline="auto" multiple>: hands files to Weighbridge, on any page.
//
// A file goes in parts by tus 1.0, so that a cut line, a closed lid or a server that starts anew costs only the part
// under way. Then the element asks how the rows fare until the server says that the upload has ended. Without `key` it
// is part of the console: the session goes along, and the form inside it is where the fields come from.
// docs/embedding.md has its attributes, events and parts.

const PART = 8 * 2 ** 20, HEAD = 2 ** 16, AT_ONCE = 3, EVERY = 1000, LONGEST_PAUSE = 15000, SILENT = 60000;
const FIELDS = ["pipeline", "platform", "project_id", "client_id", "preview", "force_partial"];
const SIGNS = { queued: "🕒 Queued", busy: "⏳ Processing", done: "✓ Completed", error: "⚠️ Error", held: "⏸ Waiting for you", cancelled: "✕ Cancelled" };
const WEATHER = [408, 423, 429, 502, 503, 504]; // it passes
const OFFLINE = "Waiting for the network…", AWAY = "The server does not answer. Trying again…";

const SHEET = new CSSStyleSheet();
SHEET.replaceSync(`
:host { display: block; color: var(--wb-upload-text, light-dark(#1b2227, #e6eaed)); font: var(--wb-upload-font, inherit); overflow-wrap: anywhere;
  --soft: var(--wb-upload-soft, light-dark(#56626c, #a3afb8)); --line: var(--wb-upload-line, light-dark(#c3ccd3, #46525a));
  --accent: var(--wb-upload-accent, light-dark(#0f766e, #2dbfae)); --on-accent: var(--wb-upload-on-accent, light-dark(#fff, #06231f));
  --bad: var(--wb-upload-bad, light-dark(#b3261e, #ff9d94)); --good: var(--wb-upload-good, light-dark(#15703f, #6fd39b)); }
:host([hidden]) { display: none; }
.drop { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1rem; margin-block: .6rem; padding: .8rem 1rem; border: 2px dashed var(--line); border-radius: .6rem; }
.drop.over { border-color: var(--accent); border-style: solid; }
.choose { display: inline-block; padding: .45rem 1.1rem; border-radius: .4rem; background: var(--accent); color: var(--on-accent); font-weight: 600; cursor: pointer; }
.sr { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
input:focus-visible + .choose, button:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.hint, .note, .line, .bars { color: var(--soft); font-size: .875rem; }
p, ul { margin: 0; padding: 0; list-style: none; }
.line { min-height: 1.4rem; }
.total { font-variant-numeric: tabular-nums; font-weight: 600; }
li { padding-block: .6rem; border-top: 1px solid var(--line); }
.top { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
.name { flex: 1 1 12rem; min-width: 0; font-weight: 600; }
.state { white-space: nowrap; font-size: .9rem; }
[data-sign=done] .state { color: var(--good); }
[data-sign=error] :is(.state, .note) { color: var(--bad); }
button { font: inherit; font-size: .875rem; min-height: 1.75rem; padding: 0 .7rem; border: 1px solid var(--soft); border-radius: .4rem; background: none; color: inherit; cursor: pointer; }
button:disabled { visibility: hidden; }
.bars { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .2rem .8rem; }
.bars label { display: grid; }
.note { min-height: 1.3rem; }
progress { appearance: none; width: 100%; height: .45rem; border: 0; border-radius: 1rem; overflow: hidden; background: var(--line); }
progress::-webkit-progress-bar { background: var(--line); }
progress::-webkit-progress-value { background: var(--accent); }
progress::-moz-progress-bar { background: var(--accent); }
progress:indeterminate, progress:indeterminate::-webkit-progress-bar { background: repeating-linear-gradient(-45deg, var(--accent) 0 .4rem, var(--line) .4rem .8rem); }
progress:indeterminate::-moz-progress-bar { background: none; }`);

// What ends a file for good: the API's own code and sentence.
class Refusal extends Error {
  constructor(told) { super(told?.message || "The server refused the file."); this.code = told?.error || "refused"; }
}
class Cut extends Error {}

const make = (name, about = {}, ...inside) => {
  const { part, ...rest } = about, element = Object.assign(document.createElement(name), rest);
  if (part) { element.part = part; element.classList.add(part); }
  element.append(...inside);
  return element;
};
const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
const number = (value) => value.toLocaleString();
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

class WbUpload extends HTMLElement {
  static observedAttributes = ["key", "expires", "multiple", "accept", "max-mb"];
  #items = [];
  #waiting = []; // for a turn to send
  #sending = 0;
  #polls = false;
  #renewed = new EventTarget();
  #expiry = 0;
  #input = make("input", { type: "file", id: "file", className: "sr" });
  #hint = make("span", { part: "hint" });
  #line = make("p", { part: "line" });
  #total = make("p", { part: "total" });
  #list = make("ul", { part: "list" });
  #live = make("p", { className: "sr", role: "status" });

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open", delegatesFocus: true });
    root.adoptedStyleSheets = [SHEET];
    const choose = make("label", { part: "choose", htmlFor: "file", textContent: "Choose files" });
    const drop = make("div", { part: "drop" }, this.#input, choose, this.#hint);
    this.#live.setAttribute("aria-live", "polite");
    root.append(make("slot"), drop, this.#line, this.#total, this.#list, this.#live);
    this.#input.addEventListener("change", () => { this.add(this.#input.files); this.#input.value = ""; });
    for (const kind of ["dragenter", "dragover"]) this.addEventListener(kind, (event) => {
      if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); drop.classList.add("over"); }
    });
    this.addEventListener("dragleave", (event) => { if (!this.contains(event.relatedTarget)) drop.classList.remove("over"); });
    this.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.add(event.dataTransfer.files);
    });
  }

  connectedCallback() {
    const form = this.querySelector("form"), chosen = form?.querySelector("input[type=file]");
    if (chosen) { // what the form can do without a script, the element does better
      for (const gone of [chosen.closest("label") || chosen, ...form.querySelectorAll("button, [type=submit]")]) {
        const row = gone.parentElement;
        gone.remove();
        if (row !== form && !row.children.length) row.remove();
      }
      form.addEventListener("submit", (event) => event.preventDefault());
    }
    addEventListener("online", this.#heard);
    addEventListener("offline", this.#heard);
    addEventListener("beforeunload", this.#leaving);
    this.attributeChangedCallback();
  }

  disconnectedCallback() {
    removeEventListener("online", this.#heard);
    removeEventListener("offline", this.#heard);
    removeEventListener("beforeunload", this.#leaving);
  }

  attributeChangedCallback(name) {
    this.#input.multiple = this.hasAttribute("multiple");
    this.#input.accept = this.getAttribute("accept") ?? ".csv,.tsv,.txt,.json,.jsonl,.ndjson";
    const most = this.getAttribute("max-mb");
    set(this.#hint, `or drop them here: CSV or JSON${most ? `, up to ${most} MB each` : ""}`);
    if (name === "key") this.#renewed.dispatchEvent(new Event("key"));
    clearTimeout(this.#expiry);
    const left = Date.parse(this.getAttribute("expires")) - Date.now() - 30000;
    if (left < 2 ** 31) this.#expiry = setTimeout(() => this.#busy() && this.#tell("token"), Math.max(left, 0));
  }

  // Take files: those that were chosen or dropped, or any that the page has.
  add(files) {
    const fields = this.#fields(), taken = [...files].slice(0, this.hasAttribute("multiple") ? Infinity : 1);
    for (const file of taken) {
      const item = this.#row({ file, fields, sent: 0, state: null, abort: new AbortController() });
      this.#items.push(item);
      this.#waiting.push(item);
    }
    if (taken.length) this.#say(taken.length === 1 ? `Sending ${taken[0].name}` : `Sending ${taken.length} files`);
    this.#next();
  }

  #fields() {
    const form = this.querySelector("form"), said = form ? new FormData(form) : new Map();
    return Object.fromEntries(FIELDS.map((name) => {
      const own = this.getAttribute(name.replace("_", "-"));
      return [name, said.get(name) || (own === "" ? "true" : own)];
    }).filter(([, value]) => value));
  }

  #row(item) {
    const bar = (part, name) => {
      const bar = make("progress", { max: 1, value: 0, part });
      item[part] = bar;
      return make("label", {}, name, bar);
    };
    item.name = make("bdi", { part: "name", textContent: item.file.name });
    item.shown = make("span", { part: "state" });
    item.note = make("p", { part: "note" });
    item.stop = make("button", { part: "cancel", type: "button", textContent: "Cancel" });
    item.stop.setAttribute("aria-label", `Cancel ${item.file.name}`);
    item.stop.addEventListener("click", () => item.abort.abort());
    const bars = make("div", { part: "bars" }, bar("sending", "Sending"), bar("parsing", "Parsing"), bar("promoting", "Promoting"));
    item.row = make("li", { part: "file" }, make("div", { className: "top" }, item.name, item.shown, item.stop), bars, item.note);
    this.#list.append(item.row);
    return this.#show(item, "queued");
  }

  #show(item, sign, note = "", word = SIGNS[sign]) {
    item.sign = sign;
    item.row.dataset.sign = sign;
    set(item.shown, word);
    set(item.note, note);
    const counted = this.#items.filter((each) => !each.refused && each.sign !== "cancelled");
    const processed = counted.filter((each) => each.state?.ended).length;
    if (this.#items.length) set(this.#total, `Processed / uploaded: ${number(processed)} / ${number(counted.length)}`);
    return item;
  }

  #say(sentence) { this.#live.textContent = sentence; }
  #busy() { return this.#items.some((item) => !item.over); }
  #leaving = (event) => { if (this.#sending) event.preventDefault(); };
  #heard = () => set(this.#line, navigator.onLine || !this.#busy() ? "" : OFFLINE);

  #tell(kind, item, more = {}) {
    const detail = item ? { file: item.file.name, size: item.file.size, uploadId: item.state?.upload_id ?? null, status: item.state?.status ?? null, ...more } : {};
    this.dispatchEvent(new CustomEvent(`wb-upload-${kind}`, { bubbles: true, composed: true, detail }));
  }

  #next() {
    while (this.#sending < AT_ONCE && this.#waiting.length) {
      this.#sending += 1;
      const item = this.#waiting.shift();
      this.#hand(item).finally(() => { this.#sending -= 1; item.stop.disabled = true; this.#next(); });
    }
  }

  // One file, from the first question to the moment that the server has all of it.
  async #hand(item) {
    try {
      this.#stopped(item);
      await this.#readable(item);
      if (item.fields.pipeline === "auto") await this.#recognise(item);
      for (let tries = 0; !await this.#send(item); tries += 1) if (tries === 2) throw new Refusal({ message: "The server lost the file three times. Send it again later." });
      item.sending.value = 1;
      item.stop.disabled = true;
      await this.#look(item);
      this.#tell("sent", item, { duplicate: item.state.duplicate, storageStatus: item.state.storage_status });
      this.#poll();
    } catch (error) {
      if (item.abort.signal.aborted) return this.#cancelled(item);
      this.#end(item, "error", error instanceof Refusal ? error.message : `Something went wrong here: ${error.message}`, error.code || "failed");
    }
  }

  #end(item, sign, note, code) {
    item.over = true;
    item.refused = sign === "error" && !item.state?.upload_id;
    this.#show(item, sign, note);
    this.#say(`${item.file.name}: ${SIGNS[sign].slice(2).trim()}. ${note}`);
    if (sign === "error") this.#tell("error", item, { code, message: note });
  }

  async #cancelled(item) {
    this.#end(item, "cancelled", "");
    if (item.id) await this.#xhr({}, "DELETE", `/api/files/${item.id}`).catch(() => {}); // else it expires
  }

  #stopped(item) { if (item.abort?.signal.aborted) throw new Cut(); }

  async #readable(item, from = 0) {
    await item.file.slice(from, from + 1).arrayBuffer().catch(() => {
      throw new Refusal({ error: "unreadable_file", message: "The file cannot be read, or has changed. Choose it again." });
    });
  }

  async #recognise(item) {
    this.#show(item, "busy", "Looking at the file…");
    const { preview, force_partial, pipeline, ...scope } = item.fields;
    const query = new URLSearchParams({ filename: item.file.name, ...scope });
    const answer = await this.#ask(item, "POST", `/api/recognise?${query}`, { "Content-Type": "application/octet-stream" }, item.file.slice(0, HEAD));
    if (answer.status !== 200) throw new Refusal(answer.json);
    const { sure, message, refusal, pipeline: found, platform } = answer.json;
    if (sure !== "one") throw new Refusal({ error: "unrecognised_file", message });
    if (refusal) throw new Refusal(refusal);
    item.kind = `Recognised as ${found}${platform ? `, ${platform}` : ""}`;
    this.#show(item, "busy", item.kind);
  }

  // True: all of it is there. False: what was there is gone, and it has to begin anew.
  async #send(item) {
    const { file } = item, said = Object.entries({ filename: file.name, ...item.fields });
    const begun = await this.#ask(item, "POST", "/api/files", {
      "Upload-Length": file.size, "Upload-Metadata": said.map(([name, value]) => `${name} ${base64(value)}`).join(","),
    });
    if (begun.status !== 201) throw new Refusal(begun.json);
    item.id = begun.header("Location").split("/").pop();
    const path = `/api/files/${item.id}`;
    let offset = 0, failures = 0;
    while (offset < file.size) {
      this.#stopped(item);
      const from = offset, headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": from };
      const onProgress = (loaded) => this.#sent(item, from + loaded);
      let answer;
      try {
        answer = await this.#xhr(item, "PATCH", path, headers, file.slice(from, from + PART), onProgress);
        if (answer.status === 204) { offset = Number(answer.header("Upload-Offset")); failures = 0; continue; }
        if (answer.status === 401) await this.#token(item, answer);
        else if (answer.status !== 409 && !WEATHER.includes(answer.status)) throw new Refusal(answer.json);
        else if (answer.status !== 409) await this.#pause(item, failures++, answer);
      } catch (error) {
        if (!(error instanceof Cut)) throw error;
        this.#stopped(item);
        await this.#readable(item, from);
        await this.#pause(item, failures++);
      }
      const told = await this.#ask(item, "HEAD", path); // where to go on
      if (told.status === 200) offset = Number(told.header("Upload-Offset"));
      else {
        const { status, json } = await this.#ask(item, "GET", path);
        if (status === 200 && json.error) throw new Refusal(json);
        if (status !== 404 && status !== 410) throw new Refusal(json);
        return false;
      }
    }
    return true;
  }

  #sent(item, bytes) {
    item.sent = bytes;
    const share = item.file.size ? bytes / item.file.size : 1;
    item.sending.value = share;
    this.#show(item, "busy", `${item.kind ? `${item.kind}. ` : ""}Sending ${Math.floor(100 * share)} %`);
    this.#tell("progress", item, { sent: bytes });
  }

  // Ask until there is an answer that is about the question, not about the weather.
  async #ask(item, method, path, headers, body) {
    for (let failures = 0; ; failures += 1) {
      let answer = null;
      try {
        // A beginning is heard out even where it is cancelled meanwhile: what the server has begun can then be ended.
        answer = await this.#xhr(path === "/api/files" ? {} : item, method, path, headers, body);
        if (answer.status === 401) { await this.#token(item, answer); continue; }
        if (!WEATHER.includes(answer.status)) return answer;
      } catch (error) {
        if (!(error instanceof Cut)) throw error;
        this.#stopped(item);
      }
      await this.#pause(item, failures, answer);
    }
  }

  async #pause(item, failures, answer) {
    this.#show(item, item.sign, navigator.onLine ? answer?.json?.message || AWAY : OFFLINE);
    const seconds = Number(answer?.header("Retry-After")) * 1000 || Math.min(500 * 2 ** failures, LONGEST_PAUSE);
    await new Promise((wake) => {
      const end = () => { clearTimeout(timer); removeEventListener("online", end); item.abort?.signal.removeEventListener("abort", end); wake(); };
      const timer = setTimeout(end, Math.min(seconds, LONGEST_PAUSE));
      addEventListener("online", end);
      item.abort?.signal.addEventListener("abort", end);
    });
    this.#stopped(item);
  }

  // The token has ended: the page is asked for another, and has a minute to set it.
  async #token(item, answer) {
    if (answer.key !== this.getAttribute("key")) return; // it is here already
    if (!answer.key) throw new Refusal(answer.json);
    this.#show(item, item.sign, "Waiting for a new upload token…");
    this.#tell("token");
    if (answer.key !== this.getAttribute("key")) return;
    await new Promise((renewed, late) => {
      this.#renewed.addEventListener("key", renewed, { once: true });
      setTimeout(() => late(new Refusal(answer.json)), SILENT);
    });
  }

  // An answer of any status, or Cut. XMLHttpRequest, because fetch cannot tell how much of a body has gone.
  #xhr(item, method, path, headers = {}, body = null, onProgress = null) {
    return new Promise((resolve, reject) => {
      const xhr = new XMLHttpRequest(), key = this.getAttribute("key"), signal = item.abort?.signal;
      xhr.open(method, (this.getAttribute("server") || "").replace(/\/+$/, "") + path);
      if (path.startsWith("/api/files")) xhr.setRequestHeader("Tus-Resumable", "1.0.0");
      if (key) xhr.setRequestHeader("Authorization", `Bearer ${key}`);
      else xhr.setRequestHeader("X-CSRF-Token", document.querySelector("meta[name=csrf]")?.content || "");
      for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
      const stop = () => xhr.abort();
      let timer = setTimeout(stop, SILENT);
      xhr.upload.onprogress = (event) => { clearTimeout(timer); timer = setTimeout(stop, SILENT); onProgress?.(event.loaded); };
      xhr.onload = () => {
        let json = null;
        try { json = JSON.parse(xhr.responseText); } catch { /* an answer without a body, or of a proxy */ }
        resolve({ status: xhr.status, json, key, header: (name) => xhr.getResponseHeader(name) });
      };
      xhr.onerror = xhr.onabort = () => reject(new Cut());
      xhr.onloadend = () => { clearTimeout(timer); signal?.removeEventListener("abort", stop); };
      signal?.addEventListener("abort", stop);
      xhr.send(body);
    });
  }

  // Every second until each upload has ended: the server says so, not what was seen here.
  async #poll() {
    if (this.#polls) return;
    this.#polls = true;
    let under;
    for (let tick = 0; (under = this.#items.filter((item) => item.id && item.state && !item.over)).length; tick += 1) {
      await new Promise((wake) => setTimeout(wake, EVERY));
      for (const item of under) if (!item.held || tick % 5 === 0) await this.#look(item).catch((error) => this.#end(item, "error", error.message, error.code));
    }
    this.#polls = false;
  }

  async #look(item) {
    const { status, json } = await this.#ask({ ...item, abort: null, sign: item.sign }, "GET", `/api/files/${item.id}`);
    if (status !== 200) throw new Refusal(json);
    const before = JSON.stringify(item.state);
    item.state = json;
    if (before === JSON.stringify(json)) return;
    if (json.error) throw new Refusal(json);
    this.#fares(item, json, json.progress || {});
    if (!item.over) return this.#tell("progress", item, { sent: item.file.size, rowsRead: json.progress?.rows_read, totalRows: json.progress?.total_rows, promotedRows: json.progress?.promoted_rows });
    this.#tell("done", item, { duplicate: json.duplicate, rejected: json.progress?.failed_rows ?? 0, message: json.progress?.error_text ?? null });
  }

  #fares(item, { status, duplicate, storage_status, ended }, { rows_read = 0, total_rows = 0, promoted_rows = 0, failed_rows = 0, held, error_text, error_code, created_at }) {
    const since = created_at && new Date(created_at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    const notes = duplicate ? [ended && status !== "failed" ? `Already here, loaded on ${since}` : `Already here, since ${since}`] : item.kind ? [item.kind] : [];
    const read = ["staging_complete", "promoting", "completed", "partial"].includes(status);
    if (status === "processing") item.parsing.removeAttribute("value"); else item.parsing.value = read ? 1 : 0;
    item.promoting.value = status === "completed" || status === "partial" ? 1 : total_rows ? promoted_rows / total_rows : 0;
    item.held = held;
    if (storage_status === "pending_retry") notes.push("Kept here; stored later, by itself");
    else if (status === "processing" && rows_read) notes.push(`${number(rows_read)} rows read`);
    else if (read && total_rows) notes.push(`${number(promoted_rows)} of ${number(total_rows)} rows in place`);
    if (failed_rows) notes.push(`${number(failed_rows)} rejected`);
    if (error_text) notes.push(error_text);
    const note = notes.join(". ");
    if (ended) return this.#end(item, status === "failed" ? "error" : "done", note, error_code);
    const sign = storage_status === "pending_retry" ? "busy" : held ? "held" : !status || status === "pending" ? "queued" : "busy";
    this.#show(item, sign, note);
  }
}

customElements.define("wb-upload", WbUpload);
