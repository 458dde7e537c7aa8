// Requests to the server, with the token from the page's address.

const KEY = "ledgerline-token";
const given = new URLSearchParams(location.search).get("token");
let token = given;
try {
  // Stored for this tab alone, so that it survives a reload of the page.
  if (given !== null) sessionStorage.setItem(KEY, given);
  else token = sessionStorage.getItem(KEY);
} catch {
  // The browser stores nothing. The address still has it.
}
if (given !== null) history.replaceState(null, "", location.pathname);

/** Requests a path; returns the response of `fetch`. */
export function ask(path, options = {}) {
  return fetch(path, { ...options, headers: token === null ? {} : { Authorization: `Bearer ${token}` } });
}

/** Reads events until they end: passes the kind and the document of each to `tell`. */
export async function read(answer, tell) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      let kind = "message";
      const data = [];
      for (const line of event.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      tell(kind, data.join("\n"));
    }
  }
}
