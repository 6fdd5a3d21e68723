/* Makes a failing schedule smaller: leaves out what the failure does not need. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sim_options;

void shrink_and_show(const struct sim_options *options);
/* "loss,host2,fault7": what to leave out; false: an unknown word. */
bool shrink_read_list(struct sim_options *options, const char *list);
