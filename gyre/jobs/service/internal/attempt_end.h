#pragma once

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/hub/attempt_run.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// Writes down how an attempt ended, what became of its nodes, and whether its job is queued again.
void write_end(Ledger& ledger, const ServiceOptions& options, const catalog::Attempt& attempt,
               const hub::AttemptResult& result) GYRE_REQUIRES(ledger.mutex);

}  // namespace gyre::jobs::service
