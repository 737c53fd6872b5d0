"""Jobs of a job server (`gyre server`), from Python: submit, wait, follow logs, download.

    from gyre.jobs import Client

    client = Client()
    job = client.submit("job.json", cluster="pool")
    for text in client.logs(job):
        print(text, end="")
    print(client.wait(job).exit_code)

Needs only the standard library. Errors are `gyre.Error`; errors from the server are a `ServerError`.
"""

from gyre.jobs._client import Client, Job, RemoteFile
from gyre.jobs._connection import Connection, find_connection
from gyre.jobs._session import NoServerError, ServerError

__all__ = ["Client", "Connection", "Job", "NoServerError", "RemoteFile", "ServerError", "find_connection"]
