#pragma once

#include <filesystem>

#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// Of a catalog that was restored from a backup, before anything is done with it: enters the ends of attempts that the
/// folder remembers, unpacks the code that came with the copy, and fails the jobs whose code is nowhere. What nodes
/// still run the workers find out.
void take_back(Ledger& ledger, const ServiceOptions& options) GYRE_REQUIRES(ledger.mutex);

}  // namespace gyre::jobs::service
