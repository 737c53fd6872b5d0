#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>

#include "gyre/base/parse.h"
#include "gyre/jobs/http/internal/contained_file.h"
#include "gyre/jobs/http/internal/file_listing.h"
#include "gyre/jobs/http/internal/requests.h"
#include "gyre/net/http/file_response.h"
#include "gyre/net/http/followed_files.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::string_view kDefaultDirectory = "stdouterr";

UniqueFd open_output(service::JobService& service, const resources::JobName& job, const std::string& id) {
  const std::vector<resources::OutputDirectory> directories = service.output_directories(job);
  std::string ids;
  for (const resources::OutputDirectory& directory : directories) {
    if (directory.id == id) return open_directory(directory.root, directory.relative);
    ids += (ids.empty() ? "" : ", ") + directory.id;
  }
  throw HttpError(404, "OutputDirectoryNotFound",
                  fmt::format("the job has no output directory '{}'; it has: {}", id, ids), id);
}

/// A path below a directory as a query names it: as strict as the path of a request.
std::string checked_path(const std::string& path) {
  if (path.empty()) return path;
  for (std::size_t at = 0;;) {
    const std::size_t end = path.find('/', at);
    const std::string segment = path.substr(at, end - at);
    const bool valid = !segment.empty() && segment != "." && segment != ".." &&
                       std::none_of(segment.begin(), segment.end(), [](char c) {
                         return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\';
                       });
    if (!valid) {
      throw HttpError(400, "InvalidParameter",
                      fmt::format("'directory' is '{}'; a path such as a/b is needed, without '.' and '..'", path),
                      "directory");
    }
    if (end == std::string::npos) return path;
    at = end + 1;
  }
}

nlohmann::json file_json(const ListedFile& file, const std::string& url) {
  nlohmann::json properties = {{"lastModified", resources::iso_8601_time(file.modified_us)}};
  if (!file.is_directory) {
    properties["contentLength"] = file.bytes;
    properties["fileId"] = fmt::format("{:x}", file.inode);  // Another one where a file of that name is a new one.
  }
  return {{"name", file.name},
          {"fileType", file.is_directory ? "directory" : "file"},
          {"downloadUrl", file.is_directory ? nlohmann::json() : nlohmann::json(url)},
          {"properties", std::move(properties)}};
}

Response list_output(const Interface& interface, const Request& request) {
  const resources::JobName job = job_in(request);
  const std::string* id = request.query("outputdirectoryid");
  const std::string* below = request.query("directory");
  const std::string* after = request.query("after");
  const std::string output = id != nullptr ? *id : std::string(kDefaultDirectory);
  const std::string path = below != nullptr ? checked_path(*below) : std::string();
  const auto most = number_in(request, "maxresults", 1, interface.limits.listed_files, interface.limits.listed_files);
  // Before the files are listed: what was written before the end is then sure to be among them.
  const bool is_complete = interface.service->files_are_complete(job);
  const int attempts = interface.service->attempts_of(job);
  const UniqueFd directory = open_beneath(open_output(*interface.service, job, output), path);
  struct stat status{};
  if (::fstat(directory.get(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    throw HttpError(404, "NotADirectory", fmt::format("'{}' is not a directory", path), path);
  }
  const FileListing listing =
      list_files(directory, after != nullptr ? *after : std::string(), static_cast<std::size_t>(most));
  nlohmann::json items = nlohmann::json::array();
  for (const ListedFile& file : listing.files) {
    net::http::Target url;
    url.segments = request.target.segments;
    url.segments.push_back(output);
    for (const std::string& segment : split(path, '/')) {
      if (!segment.empty()) url.segments.push_back(segment);
    }
    url.segments.push_back(file.name);
    items.push_back(file_json(file, to_string(url)));
  }
  return page_answer(request, std::move(items),
                     listing.has_more ? std::optional(listing.files.back().name) : std::nullopt,
                     {{"complete", is_complete}, {"attempts", attempts}});
}

/// Never a type that a browser would run: jobs write these files.
std::string_view content_type_of(std::string_view path) {
  const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
  if (ends(".txt") || ends(".log") || ends(".csv") || ends(".out") || ends(".err")) return "text/plain; charset=utf-8";
  if (ends(".json")) return "application/json";
  return "application/octet-stream";
}

Response follow(const std::shared_ptr<service::JobService>& service, net::http::FollowedFiles& followed,
                const resources::JobName& job, const Request& request, UniqueFd file, std::string_view content_type) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw HttpError(404, "NotAFile", "only regular files can be followed");
  }
  const auto offset =
      static_cast<std::uint64_t>(number_in(request, "offset", 0, std::numeric_limits<std::int64_t>::max(), 0));
  if (offset > static_cast<std::uint64_t>(status.st_size)) {
    throw HttpError(416, "InvalidRange", fmt::format("the file has {} bytes, fewer than offset", status.st_size),
                    "offset");
  }
  Response response;
  response.headers = {{"Content-Type", std::string(content_type)}, {"Cache-Control", "no-store"}};
  const std::string writer = fmt::format("{}/{}/{}", job.workspace, job.experiment, job.job);
  response.source = followed.follow(std::move(file), offset, writer, [service, job] {
    try {
      return service->files_are_complete(job);
    } catch (const Error& error) {
      // Deleted meanwhile: nobody writes any more. Whatever else is wrong with the service passes, or ends the stream.
      if (error.code() == ErrorCode::kNotFound) return true;
      throw;
    }
  });
  return response;
}

Response get_file(const std::shared_ptr<service::JobService>& service, net::http::FollowedFiles& followed,
                  const Request& request) {
  const resources::JobName job = job_in(request);
  const std::string& path = request.parameter("path");
  const bool follows = flag_in(request, "follow");
  if (!follows && request.query("offset") != nullptr) {
    throw HttpError(400, "InvalidParameter", "'offset' goes with follow=true; otherwise send a Range header", "offset");
  }
  UniqueFd file = open_beneath(open_output(*service, job, request.parameter("output")), path);
  if (follows) return follow(service, followed, job, request, std::move(file), content_type_of(path));
  return net::http::file_response(request, std::move(file), content_type_of(path));
}

}  // namespace

void add_file_routes(Router& router, const Interface& interface) {
  const std::string files = "/workspaces/{workspace}/experiments/{experiment}/jobs/{job}/files";
  add_in_workspace(
      router, interface, Method::kGet, files,
      [interface](Request& request, const resources::User&) { return list_output(interface, request); },
      [](Route& route) { route.query = {"outputdirectoryid", "directory", "maxresults", "after"}; });
  add_in_workspace(
      router, interface, Method::kGet, files + "/{output}/{path...}",
      [service = interface.service, followed = std::make_shared<net::http::FollowedFiles>()](
          Request& request, const resources::User&) { return get_file(service, *followed, request); },
      [](Route& route) { route.query = {"follow", "offset"}; });
}

}  // namespace gyre::jobs::http::internal
