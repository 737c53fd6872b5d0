#pragma once

#include <span>
#include <string>

#include "gyre/jobs/catalog/internal/database.h"

namespace gyre::jobs::catalog {

/// Step i, as SQL, makes version i + 1 out of version i.
std::span<const std::string> schema_steps();

/// Brings an empty file, or an older catalog, to the newest version, all or nothing. A file of a newer version, or of
/// another program, is an Error and stays as it is.
void migrate(Database& database, std::span<const std::string> steps);

}  // namespace gyre::jobs::catalog
