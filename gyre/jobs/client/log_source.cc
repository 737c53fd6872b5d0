#include "gyre/jobs/client/log_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::jobs::client {

namespace {

/// Empty where it is missing or null.
std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

struct OpenedFile {
  UniqueFd file{};
  struct stat status{};
};

/// Nothing where it is not a regular file.
std::optional<OpenedFile> open_regular(const std::filesystem::path& path) {
  OpenedFile opened{.file = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK))};
  if (!opened.file || ::fstat(opened.file.get(), &opened.status) != 0 || !S_ISREG(opened.status.st_mode)) {
    return std::nullopt;
  }
  return opened;
}

}  // namespace

std::optional<LogListing> ServerLogs::list() {
  const Path path = below(path_of(job_), "files");
  const Query query = {{"outputdirectoryid", "stdouterr"}};
  Json page;
  try {
    page = session_.get(path, query);
  } catch (const Error& error) {
    if (is_not_found(error)) return std::nullopt;
    throw;
  }
  LogListing listing{.attempts = page.value("attempts", 0), .complete = page.value("complete", false)};
  const bool has_more = !text_of(page, "nextLink").empty();
  for (const Json& file : has_more ? Json(session_.list(path, query)) : page.at("value")) {
    if (text_of(file, "fileType") != "file") continue;
    const Json& properties = file.at("properties");
    listing.files.push_back(
        {text_of(file, "name"), text_of(properties, "fileId"), properties.value("contentLength", std::uint64_t{0})});
  }
  return listing;
}

bool ServerLogs::job_has_ended() {
  return is_finished(resources::job_from_json(session_.get(path_of(job_))).execution_state);
}

std::string ServerLogs::read(const std::string& name, std::uint64_t from, std::uint64_t most) {
  return session_.read(below(path_of(job_), "files", "stdouterr", name), from, most).bytes;
}

std::optional<LogListing> FolderLogs::list() {
  LogListing listing{.complete = ended_()};
  listed_ = folder_();
  std::error_code missing;
  std::filesystem::directory_iterator entries(listed_, missing);
  if (listed_.empty() || missing) return std::nullopt;
  for (const auto& entry : entries) {
    const auto opened = open_regular(entry.path());
    if (!opened) continue;
    listing.files.push_back({entry.path().filename().string(), fmt::format("{:x}", opened->status.st_ino),
                             static_cast<std::uint64_t>(opened->status.st_size)});
  }
  std::ranges::sort(listing.files, {}, &LogFile::name);
  return listing;
}

std::string FolderLogs::read(const std::string& name, std::uint64_t from, std::uint64_t most) {
  const auto opened = open_regular(listed_ / name);
  if (!opened) return "";
  std::string bytes(most, '\0');
  const ssize_t count = ::pread(opened->file.get(), bytes.data(), bytes.size(), static_cast<off_t>(from));
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

}  // namespace gyre::jobs::client
