import type { JobEvent } from "./data";

/** Of a job of hundreds of ranks, whose starts are hundreds of events. */
const MOST_SHOWN = 200;

export function Events({ events, select }: { events: JobEvent[]; select: (rank: number) => void }) {
  const newest = events.slice(-MOST_SHOWN).reverse();
  return (
    <section class="panel" aria-labelledby="events">
      <h2 id="events">Events</h2>
      <ol class="events" tabIndex={0} aria-label="Events, the newest first">
        {newest.map((event) => (
          <li key={event.number} class={event.kind}>
            <time dateTime={new Date(event.time * 1000).toISOString()}>{new Date(event.time * 1000).toLocaleTimeString()}</time>
            {event.rank === null ? (
              <span>{event.text}</span>
            ) : (
              <button type="button" class="plain" onClick={() => select(event.rank ?? 0)}>{event.text}</button>
            )}
          </li>
        ))}
      </ol>
      {events.length > MOST_SHOWN && <p class="quiet">{`and ${events.length - MOST_SHOWN} earlier ones`}</p>}
    </section>
  );
}
