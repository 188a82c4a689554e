/* extract_xml.h: parses XML into events, for the readers of the XML formats. */
#ifndef CHIMERE_RETRIEVAL_EXTRACT_XML_H
#define CHIMERE_RETRIEVAL_EXTRACT_XML_H

#include "retrieval/extract_impl.h"

struct _xmlTextReader;

/* Callbacks of a walk. Names are without their prefix. An empty element causes both begin and end. */
struct xml_events {
    void (*begin)(void *ud, struct _xmlTextReader *r, const char *name);
    void (*end)(void *ud, const char *name);
    void (*text)(void *ud, const char *s);
    void *ud; /* borrowed until the walk ends */
};

int extract_xml_walk(const char *data, size_t n, const struct xml_events *v, struct err *e);
/* Call it in begin: copies the value of an attribute, whose name is without prefix. Returns false if there is none
 * or it is longer than size - 1. */
bool extract_xml_attribute(struct _xmlTextReader *r, const char *name, char *out, size_t size);

#endif
