import type { JobEvent } from "./data";

/** Of a job of hundreds of ranks, whose starts are hundreds of events. */
export const MOST_EVENTS_SHOWN = 200;

/** The day only where it is not today's. */
export function EventTime({ at }: { at: Date }) {
  const isToday = at.toDateString() === new Date().toDateString();
  return (
    <time dateTime={at.toISOString()} title={at.toString()}>
      {isToday ? at.toLocaleTimeString() : at.toLocaleString()}
    </time>
  );
}

export function Events({ events, select }: { events: JobEvent[]; select: (rank: number) => void }) {
  const newest = events.slice(-MOST_EVENTS_SHOWN).reverse();
  return (
    <section class="panel" aria-labelledby="events">
      <h2 id="events">Events</h2>
      <ol class="events" tabIndex={0} aria-label="Events, the newest first">
        {newest.map((event) => (
          <li key={event.number} class={event.kind}>
            <EventTime at={new Date(event.time * 1000)} />
            {event.rank === null ? (
              <span>{event.text}</span>
            ) : (
              <button type="button" class="plain" onClick={() => select(event.rank ?? 0)}>{event.text}</button>
            )}
          </li>
        ))}
      </ol>
      {events.length > MOST_EVENTS_SHOWN && <p class="quiet">{`and ${events.length - MOST_EVENTS_SHOWN} earlier ones`}</p>}
    </section>
  );
}
