/* Makes the response to a served request: its status, headers and body. */
#pragma once

#include <microhttpd.h>

struct hf_api_request;

enum MHD_Result hf_api_answer(struct hf_api_request *request);
