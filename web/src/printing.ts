// On paper everything is drawn, in light colours: also what nobody has scrolled to.
import { useEffect, useState } from "preact/hooks";

/** Between "beforeprint" and "afterprint": what is drawn then, is drawn before these events have been handled. */
export function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const begin = () => setPrinting(true);
    const end = () => setPrinting(false);
    addEventListener("beforeprint", begin);
    addEventListener("afterprint", end);
    return () => {
      removeEventListener("beforeprint", begin);
      removeEventListener("afterprint", end);
    };
  }, []);
  return printing;
}
