#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// Makes the folder where it is missing, and makes sure that only the service's own user can read or replace what it
/// must not give away: the catalog with its secrets and hashed tokens, the node programs' key, the code of jobs. Takes
/// back the rights that others have to these files; a sentence for each tells what was changed, and one that the jobs'
/// user cannot enter the folder. Error(kUnsupported) when others can replace the files whatever their modes are,
/// because the folder is another user's or others can write to it; nothing is changed then.
std::vector<std::string> guard_folder(const ServiceOptions& options);

}  // namespace gyre::jobs::service
