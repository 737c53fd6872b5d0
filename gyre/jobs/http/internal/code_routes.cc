#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "gyre/base/checksum.h"
#include "gyre/jobs/http/internal/code.h"
#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http::internal {
namespace {

std::string sha256_of(const UniqueFd& file, std::uint64_t bytes) {
  Sha256 digest{};
  if (bytes == 0) {
    digest = sha256({});
  } else {
    // The file has no name, so nobody can make it shorter meanwhile.
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) throw system_error("reading an archive of code", errno);
    digest = sha256({static_cast<const std::byte*>(mapped), bytes});
    ::munmap(mapped, bytes);
  }
  return hex(digest);
}

std::shared_ptr<void> admit_code(service::JobService& service, const Request& head, std::uint64_t most_bytes) {
  try {
    const resources::User sender = sender_of(head);
    check_in_workspace(service, head, sender);
    return service.room_for_code(sender, head.parameter("workspace"), checked_sha256(head.parameter("sha256")),
                                 most_bytes);
  } catch (const resources::ServiceError& error) {
    throw as_answer(error);
  }
}

Response put_code(service::JobService& service, Request& request, const resources::User& sender) {
  const std::string expected = checked_sha256(request.parameter("sha256"));
  if (request.body_bytes == 0) throw HttpError(400, "EmptyArchive", "the archive is empty");
  const std::string actual = sha256_of(request.body_file, request.body_bytes);
  if (actual != expected) {
    throw HttpError(400, "ChecksumMismatch", fmt::format("the archive's SHA-256 is {}, not {}", actual, expected),
                    expected);
  }
  service.store_code(sender, request.parameter("workspace"), expected, std::move(request.body_file),
                     request.body_bytes);
  return Response{.status = 204};
}

}  // namespace

std::string checked_sha256(const std::string& text) {
  const bool fits = text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                    });
  if (fits) return text;
  throw HttpError(400, "InvalidChecksum",
                  fmt::format("'{}' is not a SHA-256: 64 lower-case hexadecimal digits are needed", text), "sha256");
}

void add_code_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  const std::string pattern = "/workspaces/{workspace}/code/{sha256}";
  add_in_workspace(router, interface, Method::kGet, pattern, [service](Request& request, const resources::User&) {
    const std::string sha256 = checked_sha256(request.parameter("sha256"));
    if (!service->has_code(request.parameter("workspace"), sha256)) {
      throw HttpError(404, "CodeNotFound", fmt::format("there is no archive of code {}", sha256), sha256);
    }
    return Response{.status = 204};
  });
  add_in_workspace(
      router, interface, Method::kPut, pattern,
      [service](Request& request, const resources::User& sender) { return put_code(*service, request, sender); },
      [&](Route& route) {
        route.body_bytes = interface.limits.code_bytes;
        route.body_to_file = true;
        route.admit = [service](const Request& head, std::uint64_t most_bytes) {
          return admit_code(*service, head, most_bytes);
        };
      });
}

}  // namespace gyre::jobs::http::internal
