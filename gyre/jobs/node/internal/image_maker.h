#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::jobs::node::internal {

/// Where an image is made, and for whom.
struct ImageMaking {
  const orders::WorkOrder& order;  ///< Its containerSettings have `build`.
  UserId account;
  int code = -1;                  ///< The archive of the job's code, open; negative: there is none.
  std::filesystem::path scratch;  ///< A folder to be, in which nobody but us writes.
};

/// The image of a job's Dockerfile, or of its requirements on top of its image (ADR 139): made once on this machine for
/// all that it is made of and the account, and found by later attempts and jobs. `say` gets sentences for the job's
/// events, `log` what programs have said if one has failed. Errors as those of ContainerRuntime; Error(kNotFound): the
/// code lacks a file.
containers::Image made_image(containers::ContainerRuntime& runtime, const ImageMaking& making,
                             const containers::Interruption& interruption,
                             const std::function<void(const std::string&)>& say,
                             const std::function<void(const std::string&)>& log);

}  // namespace gyre::jobs::node::internal
