// <wb-upload server="https://…" key="wbt_…" pipeline="auto" multiple>: uploads files to Weighbridge from any page.
//
// Files are sent in parts with tus 1.0, so that an interruption costs only the current part. Then the element polls
// until the upload has ended. Without `key` the element is part of the console: it uses the session,
// and the fields of the form inside it. docs/embedding.md describes attributes, events and parts.

const PART = 8 * 2 ** 20, HEAD = 2 ** 16, AT_ONCE = 3, EVERY = 1000, LONGEST_PAUSE = 15000, SILENT = 60000;
const READING = ["encoding", "delimiter", "decimal", "date_order", "sum_breakdowns"];
const FIELDS = ["pipeline", "platform", "project_id", "client_id", "preview", "force_partial", ...READING];
const SIGNS = { queued: "🕒 Queued", busy: "⏳ Processing", done: "✓ Completed", part: "✓ Partially completed", error: "⚠️ Error", held: "⏸ On hold", discarded: "✕ Discarded", cancelled: "✕ Canceled" };
const RETRYABLE = [408, 423, 429, 502, 503, 504]; // temporary errors
const OFFLINE = "Waiting for the network…", AWAY = "The server does not respond. Retrying…";

const SHEET = new CSSStyleSheet();
SHEET.replaceSync(`
:host { display: block; color: var(--wb-upload-text, light-dark(#1b2227, #e6eaed)); overflow-wrap: anywhere;
  --soft: var(--wb-upload-soft, light-dark(#56626c, #a3afb8)); --line: var(--wb-upload-line, light-dark(#c3ccd3, #46525a));
  --accent: var(--wb-upload-accent, light-dark(#0f766e, #2dbfae)); --on-accent: var(--wb-upload-on-accent, light-dark(#fff, #06231f));
  --bad: var(--wb-upload-bad, light-dark(#b3261e, #ff9d94)); --good: var(--wb-upload-good, light-dark(#15703f, #6fd39b)); }
:host([hidden]) { display: none; }
.drop, .top { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem 1rem; }
.drop { margin-block: .6rem; padding: .8rem 1rem; border: 2px dashed var(--line); border-radius: .6rem; }
.drop.over { border-color: var(--accent); border-style: solid; }
.choose { display: inline-block; padding: .45rem 1.1rem; border-radius: .4rem; background: var(--accent); color: var(--on-accent); font-weight: 600; cursor: pointer; }
.sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
input:focus-visible + .choose, :is(button, ul):focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.hint, .note, .line, .bars { color: var(--soft); font-size: .875rem; }
p, ul { margin: 0; padding: 0; list-style: none; }
ul { max-height: 40rem; overflow-y: auto; }
.line { min-height: 1.4rem; }
.total { font-weight: 600; }
li { padding-block: .6rem; border-top: 1px solid var(--line); }
.name { flex: 1 1 12rem; min-width: 0; font-weight: 600; }
a { color: inherit; }
:is([data-sign=done], [data-sign=part]) .state { color: var(--good); }
[data-sign=error] :is(.state, .note) { color: var(--bad); }
button { font: inherit; padding: .1rem .7rem; border: 1px solid var(--soft); border-radius: .4rem; background: none; color: inherit; }
button:disabled { visibility: hidden; }
.bars { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .2rem .8rem; }
.bars label { display: grid; }
.note { min-height: 1.3rem; }
progress { appearance: none; width: 100%; height: .45rem; border: 0; }
progress, progress::-webkit-progress-bar { background: var(--line); }
progress::-webkit-progress-value { background: var(--accent); }
progress::-moz-progress-bar { background: var(--accent); }
progress:indeterminate, progress:indeterminate::-webkit-progress-bar { background: repeating-linear-gradient(-45deg, var(--accent) 0 .4rem, var(--line) .4rem .8rem); }
progress:indeterminate::-moz-progress-bar { background: none; }`);

// A final error of a file: the API's code and message.
class Refusal extends Error {
  constructor(problem) { super(problem?.message || "The server refused the file."); this.code = problem?.error || "refused"; }
}
class Cut extends Error {}

const make = (name, about = {}, ...inside) => {
  const { part, ...rest } = about, element = Object.assign(document.createElement(name), rest);
  if (part) { element.part = part; element.classList.add(part); }
  element.append(...inside);
  return element;
};
// A message without its sentences about API calls.
const withoutApiCalls = (message = "") => message.split(/(?<=[.!?])\s+/).filter((each) => !/\b(GET|POST|PUT|PATCH|DELETE) \/api\//.test(each)).join(" ") || message;
// The files of a dropped entry, including files in subfolders.
async function filesOf(entry) {
  const ask = (how) => new Promise((found, lost) => how(found, lost));
  if (!entry.isDirectory) return [await ask((...to) => entry.file(...to))];
  const reader = entry.createReader(), inside = [];
  for (let some; (some = await ask((...to) => reader.readEntries(...to))).length;) inside.push(...some);
  return (await Promise.all(inside.filter(({ name }) => !name.startsWith(".")).map(filesOf))).flat();
}
const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
const number = (value) => value.toLocaleString();
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

class WbUpload extends HTMLElement {
  static observedAttributes = ["key", "expires", "multiple", "accept", "max-mb"];
  #items = [];
  #waiting = []; // waiting to be sent
  #sending = 0;
  #polls = false;
  #renewed = new EventTarget();
  #expiry = 0;
  #input = make("input", { type: "file", id: "file", className: "sr" });
  #hint = make("span", { part: "hint" });
  #line = make("p", { part: "line" });
  #total = make("p", { part: "total" });
  #list = make("ul", { part: "list", ariaLabel: "Files" });
  #live = make("p", { className: "sr", role: "status", ariaLive: "polite" });

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open", delegatesFocus: true });
    root.adoptedStyleSheets = [SHEET];
    const choose = make("label", { part: "choose", htmlFor: "file", textContent: "Choose files" });
    const drop = make("div", { part: "drop" }, this.#input, choose, this.#hint);
    root.append(make("slot"), drop, this.#line, this.#total, this.#list, this.#live);
    this.#input.onchange = () => { this.add(this.#input.files); this.#input.value = ""; };
    for (const kind of ["dragover", "dragleave", "drop"]) this.addEventListener(kind, (event) => {
      drop.classList.toggle("over", kind === "dragover");
      if (kind !== "dragleave") event.preventDefault();
      if (kind === "drop") this.#dropped(event.dataTransfer);
    });
  }

  connectedCallback() {
    const form = this.querySelector("form"), chosen = form?.querySelector("input[type=file]");
    if (chosen) { // replace the form's controls that work without JavaScript
      for (const replaced of [chosen.closest("label") || chosen, ...form.querySelectorAll("button, [type=submit]")]) {
        const row = replaced.parentElement;
        replaced.remove();
        if (row !== form && !row.children.length) row.remove();
      }
      form.addEventListener("submit", (event) => event.preventDefault());
    }
    for (const [type, listener] of this.#outside) addEventListener(type, listener);
    this.attributeChangedCallback();
  }

  disconnectedCallback() {
    for (const [type, listener] of this.#outside) removeEventListener(type, listener);
  }

  attributeChangedCallback(name) {
    this.#input.multiple = this.hasAttribute("multiple");
    this.#input.accept = this.getAttribute("accept") ?? ".csv,.tsv,.txt,.json,.jsonl,.ndjson";
    const most = this.getAttribute("max-mb");
    set(this.#hint, `or drop them here: CSV or JSON${most ? `, up to ${most} MB each` : ""}`);
    if (name === "key") this.#renewed.dispatchEvent(new Event("key"));
    clearTimeout(this.#expiry);
    const left = Date.parse(this.getAttribute("expires")) - Date.now() - 30000;
    if (left < 2 ** 31) this.#expiry = setTimeout(() => this.#busy() && this.#emit("token"), Math.max(left, 0));
  }

  // Add files: chosen, dropped or provided by the page.
  add(files) {
    const fields = this.#fields(), taken = [...files].slice(0, this.hasAttribute("multiple") ? Infinity : 1);
    for (const file of taken) {
      const item = this.#row({ file, fields, sent: 0, state: null, abort: new AbortController() });
      this.#items.push(item);
      this.#waiting.push(item);
    }
    this.#showOffline();
    if (taken.length) this.#say(taken.length === 1 ? `Sending ${taken[0].name}` : `Sending ${taken.length} files`);
    this.#next();
  }

  #dropped({ items, files }) {
    const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (!entries.some(({ isDirectory }) => isDirectory)) return this.add(files);
    Promise.allSettled(entries.map(filesOf)).then((results) => {
      const inside = results.flatMap(({ value }) => value || []), found = inside.filter(({ name }) => this.#acceptable(name));
      this.add(found.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true })));
      if (results.some(({ reason }) => reason)) set(this.#line, "Some files in the folder cannot be read. Choose the files instead.");
      else if (found.length < inside.length || !found.length) set(this.#line, `${number(found.length)} of ${number(inside.length)} files in the folder have a supported type.`);
    });
  }

  #acceptable(name) {
    const kinds = this.#input.accept.split(",").map((kind) => kind.trim().toLowerCase()).filter(Boolean);
    return !kinds.length || kinds.some((kind) => !kind.startsWith(".") || name.toLowerCase().endsWith(kind));
  }

  #fields() {
    const form = this.querySelector("form"), formValues = form ? new FormData(form) : new Map();
    return Object.fromEntries(FIELDS.map((name) => {
      const own = this.getAttribute(name.replace("_", "-"));
      return [name, formValues.get(name) || (own === "" ? "true" : own)];
    }).filter(([, value]) => value));
  }

  #row(item) {
    const bar = (part, name) => make("label", {}, name, item[part] = make("progress", { max: 1, value: 0, part }));
    item.title = item.file.name.replace(/[\u202a-\u202e\u2066-\u2069]/g, ""); // remove characters that change the text direction
    item.name = make("bdi", { part: "name", textContent: item.title });
    item.shown = make("span", { part: "state" });
    item.note = make("p", { part: "note" });
    item.stop = make("button", { part: "cancel", type: "button", textContent: "Cancel", ariaLabel: `Cancel ${item.file.name}` });
    item.stop.onclick = (event) => {
      if (event.detail > 1) return; // ignore the second click of a double click: the button has changed
      this.#input.focus(); // the button is about to be disabled
      if (item.over) return this.#again(item);
      item.abort.abort();
      const place = this.#waiting.indexOf(item);
      if (place >= 0) { this.#waiting.splice(place, 1); this.#cancelled(item); }
    };
    const bars = make("div", { part: "bars" }, bar("sending", "Sending"), bar("parsing", "Parsing"), bar("promoting", "Promoting"));
    this.#list.tabIndex = this.#items.length > 5 ? 0 : -1; // the list scrolls
    item.row = make("li", { part: "file" }, make("div", { className: "top" }, item.name, item.shown, item.stop), bars, item.note);
    this.#list.append(item.row);
    return this.#show(item, "queued");
  }

  #show(item, sign, note = "") {
    item.sign = item.row.dataset.sign = sign;
    set(item.shown, SIGNS[sign]);
    set(item.note, withoutApiCalls(note));
    const counted = this.#items.filter((each) => !each.refused && each.sign !== "cancelled");
    const processed = counted.filter((each) => each.state?.ended).length;
    if (this.#items.length) set(this.#total, `Processed / uploaded: ${number(processed)} / ${number(counted.length)}`);
    return item;
  }

  #say(sentence) { this.#live.textContent = sentence; }
  #busy() { return this.#items.some((item) => !item.over); }
  #showOffline = () => set(this.#line, navigator.onLine || !this.#busy() ? "" : OFFLINE);
  #outside = [["online", this.#showOffline], ["offline", this.#showOffline], ["beforeunload", (event) => this.#sending && event.preventDefault()]];

  #emit(kind, item, more) {
    const { upload_id, status, duplicate, storage_status, progress } = item?.state || {};
    const detail = item && { file: item.file.name, size: item.file.size, sent: item.sent, uploadId: upload_id, status, duplicate, storageStatus: storage_status, progress, ...more };
    this.dispatchEvent(new CustomEvent(`wb-upload-${kind}`, { bubbles: true, composed: true, detail }));
  }

  #next() {
    while (this.#sending < AT_ONCE && this.#waiting.length) {
      this.#sending += 1;
      const item = this.#waiting.shift();
      this.#upload(item).finally(() => { this.#sending -= 1; this.#next(); });
    }
  }

  // Send one file, until the server has all of it.
  async #upload(item) {
    try {
      if (this.hasAttribute("server") && !this.hasAttribute("key")) await this.#token(item, { key: null });
      await this.#readable(item);
      if (item.fields.pipeline === "auto") await this.#recognise(item);
      for (let tries = 1; !await this.#send(item); tries += 1) if (tries === 3) throw new Refusal({ message: "The server lost the file three times." });
      item.sending.value = 1;
      item.stop.disabled = true;
      await this.#look(item);
      this.#poll();
    } catch (error) {
      if (item.abort.signal.aborted) return this.#cancelled(item);
      this.#end(item, "error", error.message, error.code);
    }
  }

  // Send again, with the current values of the fields.
  #again(item) {
    item.row.remove();
    this.#items.splice(this.#items.indexOf(item), 1);
    this.add([item.file]);
  }

  #end(item, sign, note, code) {
    item.over = item.stop.disabled = true;
    item.refused = sign === "error" && !item.state?.upload_id;
    if (item.refused || sign === "cancelled") {
      item.stop.disabled = false;
      set(item.stop, "Send again");
      item.stop.ariaLabel = `Send ${item.file.name} again`;
    }
    this.#show(item, sign, note);
    this.#say(`${item.file.name}: ${SIGNS[sign].split(" ").slice(1).join(" ")}. ${withoutApiCalls(note)}`);
    if (sign === "error") this.#emit("error", item, { code, message: note });
  }

  async #cancelled(item) {
    this.#end(item, "cancelled", "");
    if (item.id) await this.#xhr({}, "DELETE", `/api/files/${item.id}`).catch(() => {}); // otherwise it expires
  }

  #stopped(item) { if (item.abort?.signal.aborted) throw new Cut(); }

  #readable({ file }, from = 0) {
    return file.slice(from, from + 1).arrayBuffer().catch(() => {
      throw new Refusal({ error: "unreadable_file", message: "The file cannot be read or has changed. Choose it again." });
    });
  }

  async #recognise(item) {
    this.#show(item, "busy", "Detecting the file type…");
    const { preview, force_partial, pipeline, decimal, date_order, sum_breakdowns, ...scope } = item.fields;
    const query = new URLSearchParams({ filename: item.file.name, ...scope });
    const answer = await this.#ask(item, "POST", `/api/recognise?${query}`, { "Content-Type": "application/octet-stream" }, item.file.slice(0, HEAD));
    if (answer.status !== 200) throw new Refusal(answer.json);
    const { sure, message, refusal, pipeline: found, platform } = answer.json;
    if (sure !== "one") throw new Refusal({ error: "unrecognised_file", message });
    if (refusal) throw new Refusal(refusal);
    item.kind = `Detected: ${found}${platform ? `, ${platform}` : ""}`;
    this.#show(item, "busy", item.kind);
  }

  // True: the server has the whole file. False: the server lost it, and sending has to start again.
  async #send(item) {
    const { file } = item, metadata = Object.entries({ filename: file.name, ...item.fields });
    const created = await this.#ask(item, "POST", "/api/files", {
      "Upload-Length": file.size, "Upload-Metadata": metadata.map(([name, value]) => `${name} ${base64(value)}`).join(","),
    });
    if (created.status !== 201) throw new Refusal(created.json);
    item.id = created.header("Location").split("/").pop();
    const path = `/api/files/${item.id}`;
    let offset = 0, failures = 0;
    while (offset < file.size) {
      this.#stopped(item);
      const from = offset, headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": from };
      try {
        const answer = await this.#xhr(item, "PATCH", path, headers, file.slice(from, from + PART), (loaded) => this.#sent(item, from + loaded));
        if (answer.status === 204) { offset = Number(answer.header("Upload-Offset")); failures = 0; continue; }
        if (answer.status === 401) await this.#token(item, answer);
        else if (answer.status !== 409 && !RETRYABLE.includes(answer.status)) throw new Refusal(answer.json);
        else if (answer.status !== 409) await this.#pause(item, failures++, answer);
      } catch (error) {
        if (!(error instanceof Cut)) throw error;
        this.#stopped(item);
        await this.#readable(item, from);
        await this.#pause(item, failures++);
      }
      const response = await this.#ask(item, "HEAD", path); // where to continue
      if (response.status === 200) offset = Number(response.header("Upload-Offset"));
      else {
        const { status, json } = await this.#ask(item, "GET", path);
        if (status === 404 || status === 410) return false;
        throw new Refusal(json);
      }
    }
    return true;
  }

  #sent(item, bytes) {
    item.sent = bytes;
    const share = item.sending.value = bytes / item.file.size;
    this.#show(item, "busy", `${item.kind ? `${item.kind}. ` : ""}Sending ${Math.floor(100 * share)} %`);
    this.#emit("progress", item);
  }

  // Send a request; repeat it after temporary errors.
  async #ask(item, method, path, headers, body) {
    for (let failures = 0; ; failures += 1) {
      let answer = null;
      try {
        // The request that creates an upload is not aborted: without its response the upload could not be deleted.
        answer = await this.#xhr(path === "/api/files" ? {} : item, method, path, headers, body);
        if (answer.status === 401) { await this.#token(item, answer); continue; }
        if (!RETRYABLE.includes(answer.status)) return answer;
      } catch (error) {
        if (!(error instanceof Cut)) throw error;
        this.#stopped(item);
      }
      await this.#pause(item, failures, answer);
    }
  }

  async #pause(item, failures, answer) {
    this.#show(item, item.sign, navigator.onLine ? answer?.json?.message || AWAY : OFFLINE);
    const pause = Number(answer?.header("Retry-After")) * 1000 || 500 * 2 ** failures;
    await new Promise((wake) => {
      setTimeout(wake, Math.min(pause, LONGEST_PAUSE));
      addEventListener("online", wake, { once: true });
      item.abort?.signal.addEventListener("abort", wake);
    });
    this.#stopped(item);
  }

  // The token has expired: ask the page for a new one, and wait up to a minute.
  async #token(item, answer) {
    if (answer.key !== this.getAttribute("key")) return; // the page has already set a new one
    if (!answer.key && !this.hasAttribute("server")) throw new Refusal({ ...answer.json, message: "You are signed out. Reload the page and sign in." });
    this.#show(item, item.sign, "Waiting for a new upload token…");
    this.#emit("token");
    if (answer.key !== this.getAttribute("key")) return;
    await new Promise((renewed, late) => {
      this.#renewed.addEventListener("key", renewed, { once: true });
      setTimeout(() => late(new Refusal(answer.json)), SILENT);
    });
  }

  // A response with any status, or Cut. XMLHttpRequest, because fetch cannot report the progress of a body.
  #xhr(item, method, path, headers = {}, body = null, onProgress = null) {
    return new Promise((resolve, reject) => {
      const xhr = new XMLHttpRequest(), key = this.getAttribute("key"), signal = item.abort?.signal;
      xhr.open(method, (this.getAttribute("server") || "").replace(/\/+$/, "") + path);
      const who = key ? { Authorization: `Bearer ${key}` } : { "X-CSRF-Token": document.querySelector("meta[name=csrf]")?.content };
      for (const [name, value] of Object.entries({ "Tus-Resumable": "1.0.0", ...who, ...headers })) xhr.setRequestHeader(name, value);
      const stop = () => xhr.abort();
      let timer = setTimeout(stop, SILENT);
      xhr.upload.onprogress = (event) => { clearTimeout(timer); timer = setTimeout(stop, SILENT); onProgress?.(event.loaded); };
      xhr.onload = () => {
        let json = null;
        try { json = JSON.parse(xhr.responseText); } catch { /* no body, or the response of a proxy */ }
        resolve({ status: xhr.status, json, key, header: (name) => xhr.getResponseHeader(name) });
      };
      xhr.onerror = xhr.onabort = () => reject(new Cut());
      xhr.onloadend = () => { clearTimeout(timer); signal?.removeEventListener("abort", stop); };
      signal?.addEventListener("abort", stop);
      xhr.send(body);
    });
  }

  // Poll every second until the server reports the end of each upload.
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
    const before = item.state;
    item.state = json;
    if (json.error) throw new Refusal(json);
    if (!before) this.#emit("sent", item);
    const page = this.getAttribute("link");
    if (page && json.upload_id && !item.name.firstElementChild) item.name.replaceChildren(make("a", { href: page + json.upload_id, textContent: item.title }));
    this.#showProgress(item, json, json.progress || {});
    if (JSON.stringify(before) !== JSON.stringify(json)) this.#emit(item.over ? "done" : "progress", item);
  }

  #showProgress(item, { status, duplicate, storage_status, ended }, { rows_read, total_rows, promoted_rows, failed_rows, held, error_text, error_code, created_at }) {
    const since = new Date(created_at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    const reads = status === "processing", done = ended && status !== "failed", read = done || status === "staging_complete" || status === "promoting";
    const waits = storage_status === "pending_retry";
    if (reads) item.parsing.removeAttribute("value"); else item.parsing.value = read ? 1 : 0;
    item.promoting.value = done ? 1 : promoted_rows / total_rows || 0;
    item.held = held;
    const note = [
      duplicate ? `Duplicate, ${done ? "loaded on" : "received on"} ${since}` : item.kind,
      waits && "Waiting for the file store; stored automatically",
      reads && rows_read && `${number(rows_read)} rows read`,
      read && total_rows && `${number(promoted_rows)} of ${number(total_rows)} rows loaded`,
      failed_rows && `${number(failed_rows)} rejected`,
      error_text,
    ].filter(Boolean).join(". ");
    const setAside = ["discarded", "preview_expired"].includes(error_code);
    if (ended) return this.#end(item, status === "partial" ? "part" : done ? "done" : setAside ? "discarded" : "error", note, error_code);
    this.#show(item, waits ? "busy" : held ? "held" : reads || read ? "busy" : "queued", note);
  }
}

customElements.define("wb-upload", WbUpload);
