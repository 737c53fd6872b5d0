#pragma once

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/hub/attempt_run.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// Writes down how an attempt ended, what became of its nodes, and whether its job is queued again.
void write_end(Ledger& ledger, const ServiceOptions& options, const catalog::Attempt& attempt,
               const hub::AttemptResult& result) GYRE_REQUIRES(ledger.mutex);

/// Of an attempt that the catalog, restored from a backup, does not know, or whose end it does not know. Whether it was
/// missing.
bool enter_end(Ledger& ledger, const ServiceOptions& options, const catalog::Job& job, int number,
               const drivers::EndedOrder& ended) GYRE_REQUIRES(ledger.mutex);

}  // namespace gyre::jobs::service
