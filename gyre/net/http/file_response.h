#pragma once

#include <string_view>

#include "gyre/base/file.h"
#include "gyre/net/http/message.h"

namespace gyre::net::http {

/// Serves an open regular file with the size it has now: 200, 206 for the ranges of the request's Range header (several
/// as multipart/byteranges), 304 where If-None-Match names its ETag. If-Range is honoured. The ETag changes with the
/// file's inode, size and modification time. HttpError(416) for ranges that cannot be served; HttpError(404) for
/// anything but a regular file. A file that shrinks while it is sent ends the connection.
Response file_response(const Request& request, UniqueFd file, std::string_view content_type);

}  // namespace gyre::net::http
