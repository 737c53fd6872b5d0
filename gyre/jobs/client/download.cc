#include "gyre/jobs/client/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"

namespace gyre::jobs::client {

namespace {

constexpr std::uint64_t kReadAtOnce = std::uint64_t{8} << 20;
/// How often a file is begun again that has changed meanwhile.
constexpr int kMostTries = 5;

Path file_path(const resources::JobName& job, const std::string& output, const std::string& path) {
  Path whole = below(path_of(job), "files", output);
  for (std::string& segment : checked_segments(path)) whole.push_back(std::move(segment));
  return whole;
}

/// False when the file has changed on the way.
bool copy(Session& session, const Path& file, int fd, const std::string& what, std::uint64_t& bytes) {
  std::string version;
  for (bytes = 0;;) {
    const FilePart part = session.read(file, bytes, kReadAtOnce);
    if (part.bytes.empty()) return true;
    if (!version.empty() && part.version != version) return false;
    version = part.version;
    write_all(fd, as_bytes(part.bytes), what);
    bytes += part.bytes.size();
    if (part.bytes.size() < kReadAtOnce) return true;
  }
}

}  // namespace

std::vector<std::string> checked_segments(const std::string& path) {
  std::vector<std::string> segments = split(path, '/');
  std::erase(segments, "");
  for (const std::string& segment : segments) {
    if (segment == "." || segment == "..") {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a path below an output directory", path));
    }
  }
  return segments;
}

std::vector<RemoteFile> list_files(Session& session, const resources::JobName& job, const std::string& output,
                                   const std::string& path, bool recursive) {
  const std::vector<std::string> start = checked_segments(path);
  if (start.size() > kDeepestDirectory) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("'{}' is too deep below its output directory", path));
  }
  std::string parent;
  for (const std::string& segment : start) parent += (parent.empty() ? "" : "/") + segment;
  Query query = {{"outputdirectoryid", output}};
  if (!parent.empty()) query.emplace_back("directory", parent);
  std::vector<RemoteFile> files;
  for (const Json& item : session.list(below(path_of(job), "files"), query)) {
    const std::string name = item.value("name", "");
    // A server that is not ours could say anything.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) continue;
    const Json& properties = item.at("properties");
    files.push_back({.path = parent.empty() ? name : parent + "/" + name,
                     .is_directory = item.value("fileType", "") == "directory",
                     .bytes = properties.value("contentLength", std::uint64_t{0}),
                     .modified = properties.value("lastModified", "")});
    if (!recursive || !files.back().is_directory) continue;
    const std::string directory = files.back().path;
    std::vector<RemoteFile> inside = list_files(session, job, output, directory, true);
    files.insert(files.end(), std::make_move_iterator(inside.begin()), std::make_move_iterator(inside.end()));
  }
  return files;
}

std::uint64_t download(Session& session, const resources::JobName& job, const std::string& output,
                       const std::string& path, const std::filesystem::path& target) {
  const Path file = file_path(job, output, path);
  if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path());
  const std::string part = target.string() + ".part";
  for (int i = 0; i < kMostTries; ++i) {
    const UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) throw system_error(fmt::format("cannot write {}", part), errno);
    std::uint64_t bytes = 0;
    bool is_whole = false;
    try {
      is_whole = copy(session, file, fd.get(), part, bytes);
    } catch (...) {
      ::unlink(part.c_str());
      throw;
    }
    if (!is_whole) continue;
    if (::rename(part.c_str(), target.c_str()) != 0) {
      throw system_error(fmt::format("cannot write {}", target.string()), errno);
    }
    return bytes;
  }
  ::unlink(part.c_str());
  throw Error(ErrorCode::kIo,
              fmt::format("'{}' changes while it is downloaded; try again once the job has ended", path));
}

}  // namespace gyre::jobs::client
