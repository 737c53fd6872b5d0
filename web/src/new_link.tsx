import { useState } from "preact/hooks";

/** `make` asks for a link for another browser. */
export function NewLink({ make }: { make: () => Promise<string> }) {
  const [link, setLink] = useState<string | null>(null);
  if (link !== null) return <code class="link">{link}</code>;
  const show = () => make().then(setLink, () => setLink("no link can be made now"));
  return <button type="button" onClick={() => void show()}>A link for another browser</button>;
}
