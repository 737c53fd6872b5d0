#pragma once

#include "gyre/jobs/drivers/driver.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/jobs/service/internal/ledger.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// What the nodes of an attempt are handed: whose nodes it gets, and where it writes. Without `with_secrets` their
/// values are empty texts. Error(kCorruptData) where the records of job or cluster cannot be read.
orders::WorkOrder order_of(Ledger& ledger, const ServiceOptions& options, const drivers::Driver& driver,
                           const catalog::Attempt& attempt, bool with_secrets) GYRE_REQUIRES(ledger.mutex);

}  // namespace gyre::jobs::service
