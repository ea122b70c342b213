// Asks the server, and says whether anything is new.

export class Source {
  constructor() {
    this.etags = new Map();
  }

  // The JSON of a route; `null` when it is what it was at the last call with the same query.
  async ask(route, query = {}) {
    const address = url(route, query);
    const headers = this.etags.has(address) ? { "If-None-Match": this.etags.get(address) } : {};
    const response = await fetch(address, { headers, cache: "no-store" });
    if (response.status === 304) return null;
    const body = await response.json();
    if (!response.ok) throw new Error(body.error ?? `HTTP ${response.status}`);
    // Only the latest address of a source counts: a chart that was zoomed back must be drawn anew.
    this.etags.clear();
    this.etags.set(address, response.headers.get("ETag") ?? "");
    return body;
  }

  forget() {
    this.etags.clear();
  }
}

export function url(route, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) parameters.set(name, value);
  }
  return `${route}?${parameters}`;
}
