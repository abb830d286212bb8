// Keeps a page up to date: regions marked data-fresh are updated from the server without a reload.
//
// Server-sent events announce changes. The page also polls while any region is data-active, which the
// server sets while something is queued or running, or fewer files are processed than were uploaded.
// Only the server ends the polling. While the event stream is interrupted, the page polls, so that no change is missed.

const EVERY = 1000, CUT_OFF = 5000, SLOW = 15000, AT_MOST_EVERY = 350, FETCH_TIMEOUT = 10000;
const AWAY = "You are offline. Waiting for the network…";
const regions = (root) => [...root.querySelectorAll("[data-fresh]")];
const connection = document.getElementById("connection");
let streaming = false, looking = false, again = false, timer = 0, last = 0, failures = 0;

// One refresh at a time; requests that arrive meanwhile become one more refresh.
async function look() {
  if (looking) { again = true; return; }
  looking = true;
  clearTimeout(timer);
  last = Date.now();
  try {
    await Promise.all([...new Set(regions(document).filter(inReach).map(sourceOf))].map(renew));
    failures = 0;
    say("");
  } catch (error) {
    failures += 1;
    say(!navigator.onLine ? AWAY
      : error.status ? `This page is no longer available (${error.status}). Reload it.`
        : "Weighbridge does not respond. Retrying…");
  }
  looking = false;
  localTimes(document);
  if (again && !failures) { again = false; soon(); } else plan(); // keep an error message readable before the next attempt
}

const sourceOf = (region) => region.dataset.src || location.pathname + location.search;
const counterpart = (doc, region) => doc.querySelector(`[data-fresh="${region.dataset.fresh || "-"}"]`) || doc.getElementById(region.id);

// Of an endless list, refresh only the pages near the viewport; scrolling triggers a refresh.
function inReach(region) {
  if (!region.dataset.src) return true;
  const { top, bottom } = region.getBoundingClientRect();
  return bottom > -innerHeight && top < 2 * innerHeight;
}

async function renew(source) {
  const doc = await page(source);
  if (!doc) return;
  const token = doc.querySelector("meta[name=csrf]");
  if (token) document.querySelector("meta[name=csrf]").content = token.content;
  for (const region of regions(document)) {
    if (sourceOf(region) !== source) continue;
    const next = counterpart(doc, region);
    if (next) morph(region, next);
  }
  watchLinks();
}

async function page(source) {
  const answer = await fetch(source, { headers: { "X-Fresh": "1", Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(FETCH_TIMEOUT) });
  if (answer.redirected && new URL(answer.url).pathname === "/sign-in") { location.assign(answer.url); return null; }
  if (!answer.ok) throw Object.assign(new Error(answer.statusText), { status: answer.status < 500 && answer.status });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

const active = () => regions(document).some((region) => region.hasAttribute("data-active"));
const slow = () => regions(document).some((region) => region.hasAttribute("data-slow")); // not covered by events

function plan() {
  clearTimeout(timer);
  if (document.hidden && !active()) return;
  const pause = failures ? Math.min(EVERY * 2 ** failures, SLOW) : active() ? EVERY : !streaming ? CUT_OFF : slow() ? SLOW : 0;
  if (pause) timer = setTimeout(look, pause);
}

function soon() {
  if (looking) { again = true; return; }
  clearTimeout(timer);
  timer = setTimeout(look, Math.max(0, AT_MOST_EVERY - (Date.now() - last)));
}

function say(sentence) {
  if (connection.textContent !== sentence) connection.textContent = sentence;
  connection.hidden = !sentence;
}

// Turn one element into another, changing only differences: focus, scroll position and typed text stay.
function morph(from, to) {
  if (from.isEqualNode(to)) return;
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !kept(from, name)) from.removeAttribute(name);
  for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value && !kept(from, name)) from.setAttribute(name, value);
  const keyed = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const mine = next.id ? keyed.get(next.id) : at && !at.id && at.nodeName === next.nodeName ? at : null;
    if (!mine) { from.insertBefore(document.importNode(next, true), at); continue; }
    if (mine === at) at = at.nextSibling; else from.insertBefore(mine, at);
    if (mine.nodeType !== Node.ELEMENT_NODE) { if (mine.data !== next.data) mine.data = next.data; }
    else if (mine.nodeName === "TIME" && mine.dateTime === next.dateTime) continue;
    else morph(mine, next);
  }
  while (at) { const removed = at; at = at.nextSibling; removed.remove(); }
}

// Attributes that the user changed: open details, typed text.
const kept = (element, name) => name === "data-src" || (name === "data-until" && element.dataset.src) || (element.nodeName === "DETAILS" && name === "open")
  || (["INPUT", "SELECT", "TEXTAREA"].includes(element.nodeName) && element.type !== "hidden" && ["value", "checked"].includes(name));

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    time.title = time.textContent;
    time.textContent = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

// Endless lists: the next page's rows are added when the link to it scrolls into view. The page before it then covers
// everything from its start to the start of the next page, however many rows that is.
const inView = new IntersectionObserver((seen) => seen.forEach(({ isIntersecting, target }) => isIntersecting && more(target)));
const watchLinks = () => document.querySelectorAll("a[data-more]").forEach((link) => inView.observe(link));
const fetching = new Set();
async function more(link) {
  inView.unobserve(link);
  if (fetching.has(link.href)) return;
  fetching.add(link.href);
  const doc = await page(link.href).catch(() => null);
  fetching.delete(link.href);
  const pages = link.closest("[data-list]")?.querySelectorAll("[data-rows]"), rows = doc?.querySelector("[data-rows]");
  if (!rows || !pages?.length) return;
  const before = pages[pages.length - 1];
  if (before.dataset.until) before.dataset.src = before.dataset.until;
  rows.dataset.src = new URL(link.href).pathname + new URL(link.href).search;
  before.after(document.importNode(rows, true));
  link.closest("[data-fresh]")?.removeAttribute("data-fresh");
  const next = doc.querySelector("a[data-more]");
  if (next) { link.href = next.href; inView.observe(link); } else link.closest(".older").remove();
  localTimes(document);
}

// A browser allows six connections per host for all tabs: hidden tabs hold none.
let events = null;
function listen() {
  events?.close();
  const stream = events = new EventSource("/api/live");
  for (const kind of ["snapshot", "upload", "IngestionCompleteEvent"]) stream.addEventListener(kind, () => { streaming = true; soon(); });
  stream.onerror = () => {
    if (streaming) { streaming = false; soon(); }
    if (stream.readyState === EventSource.CLOSED && stream === events) setTimeout(() => stream === events && listen(), 5000);
  };
}

function seen() {
  if (document.hidden) { events?.close(); events = null; streaming = false; } else { listen(); soon(); }
}

localTimes(document);
watchLinks();
if (regions(document).length) {
  if (!document.hidden) listen();
  plan();
  addEventListener("online", soon);
  addEventListener("offline", () => { say(AWAY); soon(); }); // a pending response may still arrive: the next refresh decides
  document.addEventListener("visibilitychange", seen);
  addEventListener("scroll", soon, { passive: true });
  document.addEventListener("wb-upload-sent", soon);
  document.addEventListener("wb-upload-done", soon);
}
