#include <utility>

#include "gyre/jobs/http/internal/contained_file.h"
#include "gyre/jobs/http/internal/file_listing.h"
#include "gyre/jobs/http/internal/requests.h"
#include "gyre/page/open_jobs.h"
#include "gyre/page/routes.h"
#include "gyre/page/stored_job.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::string_view kLogs = "stdouterr";
constexpr std::size_t kMostFiles = 20'000;

/// A job's folder of logs, wherever it lies.
class JobFiles final : public page::StoredJobFiles {
 public:
  JobFiles(std::shared_ptr<service::JobService> service, resources::JobName job)
      : service_(std::move(service)), job_(std::move(job)) {}

  Facts facts() override {
    try {
      // First: what was written before the end is then sure to be there.
      const bool is_over = service_->files_are_complete(job_);
      const resources::ExecutionInfo info = service_->job(job_).execution_info;
      return {.is_over = is_over, .exit_code = info.exit_code, .ended_us = info.end_time.value_or(0)};
    } catch (const resources::ServiceError& error) {
      throw as_answer(error);
    }
  }
  std::vector<File> list() override {
    std::vector<File> files;
    try {
      for (ListedFile& file : list_files(folder(), "", kMostFiles).files) {
        if (!file.is_directory) files.push_back({.name = std::move(file.name), .bytes = file.bytes});
      }
    } catch (const HttpError&) {
      return {};  // It has none yet, or a link stands in its place.
    }
    return files;
  }
  UniqueFd open(const std::string& name) override { return open_beneath(folder(), name); }

 private:
  UniqueFd folder() const {
    for (const resources::OutputDirectory& directory : service_->output_directories(job_)) {
      if (directory.id == kLogs) return open_directory(directory.root, directory.relative);
    }
    throw HttpError(404, "DirectoryNotFound", "the job has no logs", std::string(kLogs));
  }

  std::shared_ptr<service::JobService> service_;
  resources::JobName job_;
};

}  // namespace

void add_run_routes(Router& router, const Interface& interface) {
  const auto open = std::make_shared<page::OpenJobs>();
  const page::FindJob find = [service = interface.service, open](const Request& request) {
    const resources::JobName name = job_in(request);
    const std::string uuid = service->job(name).uuid;  // Another job may have the name of a deleted one.
    return open->find(
        uuid, [&] { return std::make_shared<page::StoredJob>(name.job, std::make_unique<JobFiles>(service, name)); });
  };
  const page::Guard guard = [service = interface.service](net::http::Handler handler) -> net::http::Handler {
    return [service, handler = std::move(handler)](Request& request) {
      try {
        check_in_workspace(*service, request, sender_of(request));
        return handler(request);
      } catch (const resources::ServiceError& error) {
        throw as_answer(error);
      }
    };
  };
  page::add_job_routes(router, "/workspaces/{workspace}/experiments/{experiment}/jobs/{job}/run", find, guard, false);
}

}  // namespace gyre::jobs::http::internal
