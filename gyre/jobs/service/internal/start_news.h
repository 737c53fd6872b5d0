#pragma once

#include <string>

#include "gyre/jobs/service/internal/ledger.h"

namespace gyre::jobs::service {

/// What has been said of a job since its latest attempt was begun; nothing once its processes may run.
std::string start_news(Ledger& ledger, catalog::Id job) GYRE_REQUIRES(ledger.mutex);

}  // namespace gyre::jobs::service
