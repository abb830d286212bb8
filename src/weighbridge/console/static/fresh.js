// Keeps a page fresh: regions marked data-fresh become what the server says now, without a reload.
//
// Server-sent events say that something moved; a poll runs beneath them while any region is data-active, which the
// server sets while something is queued or running, or fewer files are processed than were uploaded.
// Only the server ends it. While the events are cut off, the page looks by itself, so that nothing is missed.

const EVERY = 1000, CUT_OFF = 5000, SLOW = 15000, AT_MOST_EVERY = 350, PATIENCE = 10000;
const AWAY = "The network is away. Waiting for it…";
const regions = (root) => [...root.querySelectorAll("[data-fresh]")];
const connection = document.getElementById("connection");
let heard = false, looking = false, again = false, timer = 0, last = 0, failures = 0;

// One look at a time; what comes meanwhile is one more look after it.
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
      : error.status ? `This page cannot be had any more (${error.status}). Load it again.`
        : "Weighbridge does not answer. Trying again…");
  }
  looking = false;
  localTimes(document);
  if (again && !failures) { again = false; soon(); } else plan(); // what went wrong is to be read, and tried again in a while
}

const sourceOf = (region) => region.dataset.src || location.pathname + location.search;
const twin = (told, region) => told.querySelector(`[data-fresh="${region.dataset.fresh || "-"}"]`) || told.getElementById(region.id);

// Of an endless list only the pages that can be seen soon; scrolling looks again.
function inReach(region) {
  if (!region.dataset.src) return true;
  const { top, bottom } = region.getBoundingClientRect();
  return bottom > -innerHeight && top < 2 * innerHeight;
}

async function renew(source) {
  const told = await page(source);
  if (!told) return;
  const token = told.querySelector("meta[name=csrf]");
  if (token) document.querySelector("meta[name=csrf]").content = token.content;
  for (const region of regions(document)) {
    if (sourceOf(region) !== source) continue;
    const next = twin(told, region);
    if (next) morph(region, next);
  }
  watchLinks();
}

async function page(source) {
  const answer = await fetch(source, { headers: { "X-Fresh": "1", Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.redirected && new URL(answer.url).pathname === "/sign-in") { location.assign(answer.url); return null; }
  if (!answer.ok) throw Object.assign(new Error(answer.statusText), { status: answer.status < 500 && answer.status });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

const active = () => regions(document).some((region) => region.hasAttribute("data-active"));
const slow = () => regions(document).some((region) => region.hasAttribute("data-slow")); // the events do not tell of it

function plan() {
  clearTimeout(timer);
  if (document.hidden && !active()) return;
  const pause = failures ? Math.min(EVERY * 2 ** failures, SLOW) : active() ? EVERY : !heard ? CUT_OFF : slow() ? SLOW : 0;
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

// Make one element what another is, touching only what differs: focus, scroll and what is being typed stay.
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
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

// What the reader did: opened details, typed words.
const kept = (element, name) => name === "data-src" || (name === "data-until" && element.dataset.src) || (element.nodeName === "DETAILS" && name === "open")
  || (["INPUT", "SELECT", "TEXTAREA"].includes(element.nodeName) && element.type !== "hidden" && ["value", "checked"].includes(name));

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    time.title = time.textContent;
    time.textContent = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

// Endless lists: the next page's rows are added when the link to it comes into view. The page before it then goes from
// where it begins to where the next one does, however many rows that are by then.
const inView = new IntersectionObserver((seen) => seen.forEach(({ isIntersecting, target }) => isIntersecting && more(target)));
const watchLinks = () => document.querySelectorAll("a[data-more]").forEach((link) => inView.observe(link));
const fetching = new Set();
async function more(link) {
  inView.unobserve(link);
  if (fetching.has(link.href)) return;
  fetching.add(link.href);
  const told = await page(link.href).catch(() => null);
  fetching.delete(link.href);
  const pages = link.closest("[data-list]")?.querySelectorAll("[data-rows]"), rows = told?.querySelector("[data-rows]");
  if (!rows || !pages?.length) return;
  const before = pages[pages.length - 1];
  if (before.dataset.until) before.dataset.src = before.dataset.until;
  rows.dataset.src = new URL(link.href).pathname + new URL(link.href).search;
  before.after(document.importNode(rows, true));
  link.closest("[data-fresh]")?.removeAttribute("data-fresh");
  const next = told.querySelector("a[data-more]");
  if (next) { link.href = next.href; inView.observe(link); } else link.closest(".older").remove();
  localTimes(document);
}

// A browser has six connections to a host for all of its tabs: those that nobody looks at hold none.
let events = null;
function listen() {
  events?.close();
  const stream = events = new EventSource("/api/live");
  for (const kind of ["snapshot", "upload", "IngestionCompleteEvent"]) stream.addEventListener(kind, () => { heard = true; soon(); });
  stream.onerror = () => {
    if (heard) { heard = false; soon(); }
    if (stream.readyState === EventSource.CLOSED && stream === events) setTimeout(() => stream === events && listen(), 5000);
  };
}

function seen() {
  if (document.hidden) { events?.close(); events = null; heard = false; } else { listen(); soon(); }
}

localTimes(document);
watchLinks();
if (regions(document).length) {
  if (!document.hidden) listen();
  plan();
  addEventListener("online", soon);
  addEventListener("offline", () => { say(AWAY); soon(); }); // an answer under way may still come: the look after it knows
  document.addEventListener("visibilitychange", seen);
  addEventListener("scroll", soon, { passive: true });
  document.addEventListener("wb-upload-sent", soon);
  document.addEventListener("wb-upload-done", soon);
}
