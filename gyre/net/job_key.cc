#include "gyre/net/job_key.h"

#include "gyre/base/random.h"

namespace gyre::net {

JobKey make_random_key() {
  JobKey key;
  fill_with_secure_random(key);
  return key;
}

}  // namespace gyre::net
