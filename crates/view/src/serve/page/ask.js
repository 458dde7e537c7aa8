// Asks the server, with the token that came in the page's address.

const KEY = "ledgerline-token";
const given = new URLSearchParams(location.search).get("token");
let token = given;
try {
  // (For this tab alone: it outlives that the page is loaded anew.)
  if (given !== null) sessionStorage.setItem(KEY, given);
  else token = sessionStorage.getItem(KEY);
} catch {
  // The browser keeps nothing. The address still has it.
}
if (given !== null) history.replaceState(null, "", location.pathname);

/** An answer, as `fetch` gives it. */
export function ask(path, options = {}) {
  return fetch(path, { ...options, headers: token === null ? {} : { Authorization: `Bearer ${token}` } });
}

/** Reads events until they end: tells each one's kind and document. */
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
