#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "gyre/jobs/spec/internal/object_reader.h"

namespace gyre::jobs::spec {

struct FileReading {
  ApiVersion version = ApiVersion::k2018_05_01;
  std::vector<Problem> problems;
  bool has_error = false;
};

/// Reads the document and what surrounds its properties: `$schema`, which is never fetched, and what the service's
/// answers add. Calls `read` with the properties, unless there are none. `kind`: "job" or "cluster".
FileReading read_file(std::string_view text, const ParseOptions& options, std::string_view kind,
                      const std::function<void(ObjectReader& properties)>& read);

/// The result. No spec comes out of a file that has errors, nor out of one that to_json() would write too large to be
/// read again.
Parsed<JobSpec> result_of(FileReading file, std::optional<JobSpec> spec);
Parsed<ClusterSpec> result_of(FileReading file, std::optional<ClusterSpec> spec);

}  // namespace gyre::jobs::spec
