#pragma once

#include <filesystem>

#include "gyre/jobs/catalog/catalog.h"

namespace gyre::jobs::service {

/// Copies what a service knows to a new file, whether or not it runs: its catalog, as it is at one moment, and the code
/// of the jobs that have not ended then. Error as catalog::Catalog::back_up(); where it fails there is no file.
catalog::BackedUpCode back_up(const std::filesystem::path& folder, const std::filesystem::path& file);

}  // namespace gyre::jobs::service
