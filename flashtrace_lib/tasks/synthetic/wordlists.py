"""Words that the written problems are made of. Names belong to a split by checksum (`splits.in_split`)."""

FIRST_NAMES = tuple(
    (
        "Ada Agnes Albert Alma Amos Anita Anton Arlo Astrid Basil Beata Bela Boris Bruno Carla Cedric Clara Cora "
        "Cyril Dagny Daria Dora Edgar Edith Elias Ella Elmar Enid Esther Ezra Felix Fiona Flora Frida Gavin Gerda "
        "Gilda Greta Gustav Hanna Harald Hazel Hector Helga Hilda Hugo Ida Igor Ines Iris Ivan Jasper Jonas Judith "
        "Julia Karin Kaspar Klara Konrad Lars Laura Leo Lena Linda Lotte Lucas Lydia Magda Malcolm Marta Maud Max "
        "Mila Milo Mina Mona Nadia Nils Nina Nora Norbert Olaf Olga Oscar Otto Paula Petra Philip Quentin Ralf Rita "
        "Robert Rosa Rufus Ruth Selma Sigrid Simon Sofia Stella Sven Tamara Theo Thora Tilda Tobias Ulla Ursula "
        "Vera Victor Viola Walter Wanda Wilma Yorick Yvonne Zelda Zora"
    ).split()
)
LAST_NAMES = tuple(
    (
        "Abelard Ashdown Barrow Beckwith Belmont Birch Blackwood Bramley Brandt Calder Carrow Castell Corbin Crane "
        "Dalton Delmar Denholm Draper Eastman Egerton Ellwood Fairfax Falk Farrow Fenwick Finch Garland Gifford "
        "Grantham Graves Halden Harrow Hartwell Hawke Holm Holloway Ingram Jarrow Keating Kestrel Kirkwood Lambert "
        "Langley Larkin Lindgren Lockhart Loring Marlow Mercer Merrick Moreland Nash Northcote Norwood Oakley Orwin "
        "Paley Pembroke Prescott Quill Radley Ravenel Redfern Ridley Rowan Sandoval Selby Sterling Stroud Sutter "
        "Tennant Thorne Tilney Underhill Vance Verity Wakeley Warwick Wexley Whitlock Winslow Wolfe Yardley Zeller"
    ).split()
)
TOWN_STARTS = tuple(
    "Alder Ash Beck Birk Bram Carl Cold Dun East Elm Fal Fen Glen Grim Hal Hart Holm Ken Kirk Lang Lin Mar Mel Nor "
    "Oak Pen Raven Rock Sel Stan Stone Thorn Wal West Win Wood".split()
)
TOWN_ENDS = tuple("bourne bridge brook burg by combe dale don field ford gate ham hurst lea ley mere mouth ness port "
                  "stead stow ton wick worth".split())  # fmt: skip
ADJECTIVES = tuple(
    "Amber Bitter Blue Bright Broken Burning Crooked Distant Empty Fallen Frozen Gentle Golden Green Hidden Hollow "
    "Iron Last Little Long Lost Northern Old Pale Quiet Red Restless Scarlet Second Silent Silver Slow Southern "
    "Strange Velvet Wandering White Wild Winter Yellow".split()
)
NOUNS = tuple(
    "Anchor Apple Archive Arrow Bell Bird Boat Bridge Candle Castle Clock Cloud Compass Crown Door Engine Feather "
    "Field Fire Forest Garden Gate Harbour Horse House Island Key Ladder Lantern Letter Lighthouse Map Mirror "
    "Mountain Night Orchard Painter Piano Promise River Road Rose Sail Shadow Shore Signal Song Star Stone Storm "
    "Summer Tower Train Tree Valley Voyage Wall Window".split()
)
THINGS = tuple(
    "apples marbles stamps shells pencils buttons cards eggs candles ribbons stones lemons books bottles keys "
    "spoons plums tiles feathers".split()
)
